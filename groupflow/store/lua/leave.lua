#!lua flags=allow-oom
-- leave: close a daemon's session at its orderly end. Hands over at once the claims that it still holds: a stop did not
-- end what runs under them. They count as lost leases, since the daemon did not die of them.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session, as it shows it · 3 lease (µs)
-- returns  rows of { id, group, fence } that were handed over
local now = clock()
if call('EXISTS', K.epoch) == 0 then return {} end -- the namespace was moved away
enter_epoch(now, tonumber(ARGV[3]))
local loser = call('LINDEX', K.lost .. ARGV[1], 0)
if loser == sub(ARGV[2], 17) then judge_loss(ARGV[1], loser) end -- its last sign of life
-- A daemon that stops also ends what its own process has opened since: it may not have heard of that.
local is_open = session_state(ARGV[1], ARGV[2]) == 'OK'
local is_own = not pool_of(ARGV[1]) and call('HGET', K.daemon .. ARGV[1], 'process') == sub(ARGV[2], 17)
if not is_open and not is_own then return {} end
if is_awaited(ARGV[1]) then arrive(false) end -- no daemon will know what it was told
return (hand_over(ARGV[1], now, 'left'))
