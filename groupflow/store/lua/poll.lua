#!lua flags=allow-oom
-- poll: a puller calls. Its session is opened, or its lease pushed back. A puller that was silent for its lease has
-- lost what it held, even if it wasn't reaped; one that comes to a server of another epoch loses all that is known of it
-- there, since more may have been lost (docs/adr/0071). Its groups stay locked as long as the pool gives nothing out: it
-- may run them until it hears so.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 worker, `pool/<pool>/<worker>` · 2 its lease (µs) · 3 a daemon's (µs) · 4 how many claims it may
--          hold in all, 0 where it asks for none · 5 'open', or '' where it gets no session that it has not
--          6 how many workers its pool may have with it, 0 where another partition counts them
-- returns  { HAS one; NONE, also while what it held of another epoch is locked; FULL, where its pool has as many
--          workers as it may; or GOING, where what it held is still to be taken away: call again; its session, as
--          it shows it; Redis's clock (µs); when its lease runs out (µs); the epoch; its slots and checkpoints as
--          a flat list; what it could claim, the best first, as a flat list of two each: 'g' or 'p' for a group
--          or a plain task · order (16 digits, behind a '-' of a quarantined task, which goes first); the ids of
--          tasks that it holds and that are to be cancelled }
local now = clock()
local daemon, lease = ARGV[1], tonumber(ARGV[2])
local pool = pool_of(daemon)
local key, leases = K.daemon .. daemon, K.pool_pullers .. pool
local refusal = other_layout()
if refusal then return refusal end
enter_epoch(now, tonumber(ARGV[3]))
local known = call('HMGET', key, 'session', 'process', 'epoch', 'quarantined')
local session, ends = known[1], tonumber(call('ZSCORE', leases, daemon) or nil) or 0
-- Nothing is given until every puller that may hold a claim unknown here has been silent for a lease.
local gives_from = epoch.before ~= '' and tonumber(call('HGET', K.epoch, 'since') or nil) or 0
if gives_from > 0 then gives_from = gives_from + lease end
local function without(state) return { state, '', now, gives_from, epoch.id, {}, {}, {} } end
if session and known[3] ~= epoch.id and ends >= now and gives_from > now then
  call('HSET', key, 'epoch', CAME_BACK)
  call('ZADD', leases, digits(gives_from), daemon)
  return without('NONE')
end
if session and (ends < now or known[3] ~= epoch.id) then
  local _, is_over = hand_over(daemon, now, ends >= now and 'lived' or nil, MOST_TAKEN)
  if not is_over then return without('GOING') end
  session, known[4] = false, false
end
if not session then
  if ARGV[5] == '' then return without('NONE') end
  local most = tonumber(ARGV[6])
  if most > 0 and call('ZCARD', leases) >= most then return without('FULL') end
  session = digits(call('INCR', K.fence))
  call('HSET', key, 'session', session, 'process', 'pull', 'epoch', epoch.id, 'info', '{}')
  call('HSETNX', K.pools, pool, digits(now)) -- so that `reap` finds it
end
call('HSET', key, 'lease', lease)
call('ZADD', leases, digits(now + lease), daemon)

local checkpoints, held = call('HGETALL', K.worker .. daemon), 0
for i = 2, #checkpoints, 2 do
  if byte(checkpoints[i]) == LIVE then held = held + 1 end
end
local room, found = tonumber(ARGV[4]) - held, {}

if room > 0 and gives_from <= now and call('EXISTS', K.paused_all, K.recovering, K.outbox_full) == 0 then
  local function look(kind, index, most, front)
    local best = call('ZRANGE', index, 0, most - 1, 'WITHSCORES')
    for i = 2, #best, 2 do
      found[#found + 1] = { kind, front .. digits(best[i]) }
      local behind = front == '' and is_limiting() and is_capping() and caps().behind(kind, best[i - 1], most) or {}
      for n = 2, #behind, 2 do found[#found + 1] = { kind, digits(behind[n]) } end
    end
  end
  if not known[4] then
    look('g', index_of('quarantined_groups', pool), 1, '-')
    look('p', index_of('quarantined_plain', pool), 1, '-')
  end
  look('g', index_of('ready', pool), room, '')
  look('p', index_of('ordered', pool), room, '')
  table.sort(found, function(a, b) return a[2] < b[2] end)
end
local flat = {}
for i = 1, math.min(room, #found) do
  flat[2 * i - 1], flat[2 * i] = found[i][1], found[i][2]
end
return { 'HAS', session .. 'pull', now, now + lease, epoch.id, checkpoints, flat, cancels_of(daemon) }
