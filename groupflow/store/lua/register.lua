#!lua flags=allow-oom
-- register: open a session for a daemon, and take up at once what an earlier process of the same name still held. What
-- its own process opened since is the answer: so a late call, behind the one made in its place, takes nothing away from
-- the daemon that lives. Nor does a process take the name from one born later, in either order of their calls.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 lease (µs) · 3 what `status` tells of it (JSON) · 4 the process, which no other
--          one names so · 5 the number of its last session, 0 for none
--          6 'agreed' where the caller knows the namespace's number of partitions for sure, else ''
--          7 its limits (see `configure`) · 8 the types that it has handlers of (JSON)
--          9… what it shows (see `shown_from`)
-- returns  { session, REPLACED, or UNNOTED where the caller has to find that number out first, rows of
--          { id, group, fence } that were taken up, the epoch, 1 where another daemon would miss it,
--          should this server lose it, else 0 }
local now = clock()
local daemon, process, last, shown = ARGV[1], ARGV[4], ARGV[5], shown_from(9)
local key = K.daemon .. daemon
local refusal = other_layout()
if refusal then return refusal end
if PARTITIONS > 0 and call('HEXISTS', K.partitions, 'number') == 0 then
  if ARGV[6] == '' then return { 'UNNOTED', {}, '', 0 } end
  call('HSET', K.partitions, 'number', PARTITIONS, 'format', FORMAT)
end
enter_epoch(now, tonumber(ARGV[2]))
local known = call('HMGET', key, 'session', 'process')
local session, rows = known[1], {}
local is_own = session and known[2] == process
if session and process < known[2] then return { 'REPLACED', {}, '', 0 } end
local birth = sub(process, 1, 16)
if birth > (call('HGET', K.epoch, 'birth') or NEVER) then call('HSET', K.epoch, 'birth', birth) end
-- If this server loses it, its name is awaited; or no daemon is known whose coming could end a recovery.
local witnessed = call('HGET', K.epoch, 'witnessed') or NEVER
local is_missed = (session and session <= witnessed) or call('ZCARD', K.daemons) == 0
if is_awaited(daemon) then arrive(is_own and proves(daemon, shown, now)) end
raise(shown)
judge_loss(daemon, process)
if not is_own or session <= last then
  rows = hand_over(daemon, now, is_own and 'lived' or 'died')
  raise_fence(tonumber(last)) -- nor does a process get a number twice, where the counter has gone back too
  session = digits(call('INCR', K.fence))
  call('HSET', key, 'session', session, 'info', ARGV[3], 'process', process)
  call('HSET', K.epoch, 'enrolled', session)
  if is_missed then
    witnessed = session
    call('HSET', K.epoch, 'witnessed', session)
  end
end
call('HSET', key, 'lease', ARGV[2], 'epoch', epoch.id)
call('ZADD', K.daemons, digits(now + ARGV[2]), daemon)
configure(ARGV[7], now)
announce(daemon, ARGV[8])
recover(now)
return { session, rows, epoch.id, session <= witnessed and 1 or 0 }
