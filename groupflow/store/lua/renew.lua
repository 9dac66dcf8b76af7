#!lua flags=allow-oom
-- renew: push back the end of a daemon's lease, which covers all its claims. A quarantined task's first attempt since
-- its crash is none any more once it is a lease old: another quarantined task may run beside it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session, as it shows it · 3 lease (µs) · 4… what else it shows (see `shown_from`)
-- returns  { state, plain tasks that this daemon may claim, groups that it may claim, the epoch, the
--          number of the newest session, 1 where another daemon would miss this one, else 0, µs for which
--          nothing may be claimed at most, or -1, the ids of tasks that it holds and that are to be cancelled }
--          state: OK, EXPIRED (its claims were handed on), LOST (this server may not know all of them),
--          REPLACED (its name was taken over)
local now = clock()
local daemon, lease, shown = ARGV[1], tonumber(ARGV[3]), shown_from(4)
local state = session_state(daemon, ARGV[2])
if state ~= 'OK' then return { state, 0, 0, '', NEVER, 0, -1, {} } end
enter_epoch(now, lease)
local has_come = is_awaited(daemon)
if not goes_on(shown) or (has_come and may_have_lost_a_run(daemon, now)) then
  return { 'LOST', 0, 0, '', NEVER, 0, -1, {} }
end
raise(shown)
if has_come then
  arrive(proves(daemon, shown, now))
  call('HSET', K.daemon .. daemon, 'epoch', epoch.id)
end
call('ZADD', K.daemons, 'XX', digits(now + lease), daemon)
call('HDEL', K.daemon .. daemon, 'blocks') -- its loop is not blocked any more
local since = quarantine and tonumber(string.sub(quarantine, 17))
if since and now - since >= lease then end_quarantine(daemon) end

-- A daemon that is missed, and knows of a session, would miss that one too: it shows that it was told.
local told = call('HMGET', K.epoch, 'enrolled', 'witnessed')
local enrolled, witnessed, own = told[1] or NEVER, told[2] or NEVER, sub(ARGV[2], 1, 16)
local seen = witnessed
local is_alone = call('ZCARD', K.daemons) == 1
if (shown.is_old or is_alone) and own > seen then seen = own end
if own <= seen and shown.enrolled > seen then seen = shown.enrolled end
if seen > witnessed then call('HSET', K.epoch, 'witnessed', seen) end

local waits = recover(now)
local plain, groups = call('LLEN', K.plain) + call('ZCARD', K.ordered), call('ZCARD', K.ready)
if not quarantine then
  plain = plain + call('ZCARD', K.quarantined_plain)
  groups = groups + call('ZCARD', K.quarantined_groups)
end
if waits >= 0 then plain, groups = 0, 0 end
return { 'OK', plain, groups, epoch.id, enrolled, own <= seen and 1 or 0, waits, cancels_of(daemon) }
