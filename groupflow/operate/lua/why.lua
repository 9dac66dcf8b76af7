#!lua flags=no-writes
-- why: all facts about one group in one instant.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 group
-- returns  { now (µs), waiting in its lane, lock or '', the holder's checkpoint or '',
--            µs until the holder's lease ends, head element (the one that runs, or is next) or '',
--            its life's attempt, errors (JSON) and crashes, each nil where it has none,
--            its score among those that are ready or '', due in held or '', parked (JSON) or '',
--            paused (JSON) or '', all paused (JSON) or '',
--            where its head waits as a suspect: the daemons that run another one }
local group = ARGV[1]
local now = clock()
local lock = call('GET', K.lock .. group) or ''
local checkpoint, lease = '', 0
if lock ~= '' then
  local worker = string.match(lock, '[^ ]+$')
  local daemon = string.sub(lock, 18, -(#worker + 2))
  checkpoint = call('HGET', K.worker .. daemon, worker) or ''
  lease = (tonumber(call('ZSCORE', K.daemons, daemon) or now)) - now
end
local suspect, busy = call('ZSCORE', K.suspect_groups, group), {}
for _, daemon in ipairs(suspect and call('ZRANGE', K.daemons, 0, 999) or {}) do
  if call('HEXISTS', K.daemon .. daemon, 'suspect') == 1 then busy[#busy + 1] = daemon end
end
local claim = checkpoint ~= '' and claim_of(checkpoint)
local head = claim and claim.element or call('LINDEX', K.lane .. group, -1) or ''
return {
  now, call('LLEN', K.lane .. group), lock, checkpoint, lease, head,
  head ~= '' and call('HMGET', K.life .. id_of(head), 'attempt', 'errors', 'crashes')
    or { false, false, false },
  suspect or call('ZSCORE', K.ready, group) or '', call('ZSCORE', K.held, group) or '',
  call('HGET', K.parked, group) or '', call('HGET', K.paused, group) or '',
  call('GET', K.paused_all) or '', busy,
}
