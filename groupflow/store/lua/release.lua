#!lua flags=allow-oom
-- release: hand tasks back unfinished (the daemon stops, or gave up its lease): each is the next of
-- its group again, and for anybody to claim.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · then four a claim: slot · fence · element · group
-- returns  { state, one 1 (accepted, also a repeat) or 0 (the fence is stale) a claim }
local daemon = ARGV[1]
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, {} } end
local now, verdicts, released = clock(), {}, {}
for i = 3, #ARGV, 4 do
  local element, group = ARGV[i + 2], ARGV[i + 3]
  local claim = end_claim(daemon, ARGV[i], ARGV[i + 1], group)
  if claim == 'live' then
    released[#released + 1] = { element, group }
    -- Who pulls may not have heard that its limit gave this one back: nothing that it says of it holds.
    if pool_of(daemon) then call('HDEL', K.worker .. daemon, ARGV[i]) end
    count_end(group)
  end
  verdicts[#verdicts + 1] = claim == 'lost' and 0 or 1
end
-- The oldest is put back last, so that it stands first.
table.sort(released, function(a, b) return a[1] > b[1] end)
for _, each in ipairs(released) do put_back(each[1], each[2], now) end
write_counts(true)
if plain_ended > 0 then tell('plain') end
if grouped_ended > 0 then tell('grouped') end
return { 'OK', verdicts }
