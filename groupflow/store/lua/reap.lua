#!lua flags=allow-oom
-- reap: take over from daemons, and pullers, whose lease has run out. A lease ends only in a script, and no key expires
-- by itself: so a group can't come free while a daemon still believes to hold it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many daemons at most · 2 the caller's lease (µs) · 3 'final' where no process that lost its lease can
--          come back
-- returns  { µs until the next lease ends, may be looked at, or counts as a death, or -1, rows of { daemon, id, group,
--          fence } }
local now = clock()
if call('EXISTS', K.epoch) == 0 then return { -1, {} } end -- no daemon was ever here, or the namespace was moved away
enter_epoch(now, tonumber(ARGV[2]))
local waits = recover(now)
if waits >= 0 then return { waits, {} } end
local rows = {}
local wait = count_silent(now, ARGV[3] == 'final')

local function expired(leases, most) return call('ZRANGEBYSCORE', leases, '-inf', digits(now), 'LIMIT', 0, most) end

-- Returns how many tasks were taken.
local function take_from(daemon, most)
  local taken = hand_over(daemon, now, nil, most)
  for _, row in ipairs(taken) do rows[#rows + 1] = { daemon, row[1], row[2], row[3] } end
  return #taken
end

local function wait_for(leases)
  local nearest = call('ZRANGE', leases, 0, 0, 'WITHSCORES')[2]
  local left = nearest and math.max(0, tonumber(nearest) - now)
  if left and (wait < 0 or left < wait) then wait = left end
end

for _, daemon in ipairs(expired(K.daemons, ARGV[1])) do
  if #rows < MOST_TAKEN then take_from(daemon) end
end
wait_for(K.daemons)

-- Each pool has the same share of what a script takes, in steps: a session is one, and so is each of its tasks. So no
-- pool waits for another, even if many of its workers are gone. Where there are more pools than steps, each call begins
-- with another one.
local names, silent = pools(), {}
for i = 1, #names do
  local leases = K.pool_pullers .. names[(now + i) % #names + 1]
  if call('ZCOUNT', leases, '-inf', digits(now)) > 0 then silent[#silent + 1] = leases end
end
local share, left = math.ceil(MOST_TAKEN / #silent), MOST_TAKEN
for _, leases in ipairs(silent) do
  local most = math.min(share, left)
  left = left - most
  for _, puller in ipairs(expired(leases, most)) do
    if most > 0 then most = most - 1 - take_from(puller, most) end
  end
end
for _, name in ipairs(names) do wait_for(K.pool_pullers .. name) end
return { wait, rows }
