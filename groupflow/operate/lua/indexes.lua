-- Behind the prelude in scripts that look at waiting tasks: several indexes read as one. Quarantined tasks count as
-- waiting like the rest, and come first.

local READY = { K.quarantined_groups, K.ready }
local PLAIN = { K.quarantined_plain, K.ordered }
-- All indexes that daemons claim from; those of pools come behind them.
local OWN_READY, OWN_PLAIN = { unpack(READY) }, { unpack(PLAIN) }
for _, pool in ipairs(pools()) do
  READY[#READY + 1], READY[#READY + 2] = index_of('quarantined_groups', pool), index_of('ready', pool)
  PLAIN[#PLAIN + 1], PLAIN[#PLAIN + 2] = index_of('quarantined_plain', pool), index_of('ordered', pool)
end

-- Those of one pool: of groups, and of plain tasks.
local function indexes_of(pool)
  return { index_of('quarantined_groups', pool), index_of('ready', pool) },
    { index_of('quarantined_plain', pool), index_of('ordered', pool) }
end

-- Of a line of tasks or groups that wait for a type, a member of `cap_lines`: its place in `cap_waits` and `cap_turns`,
-- and its pool.
local function line_named(member)
  local length = tonumber(sub(member, 1, 4))
  return sub(member, 5 + length) .. '/' .. sub(member, 5, 4 + length), sub(member, 6 + length)
end

-- { since, until } (µs) while nothing is claimed, since this server may have lost writes; else nil.
local function recovering(now)
  local ends = call('GET', K.recovering)
  return ends and { call('HGET', K.epoch, 'since') or digits(now), ends } or nil
end

-- How many workers pull from a pool: their leases run. nil where there is no pool.
local function pullers_of(pool, now)
  return pool and call('ZCOUNT', K.pool_pullers .. pool, digits(now), '+inf')
end

local function count_in(indexes)
  local total = 0
  for _, index in ipairs(indexes) do total = total + call('ZCARD', index) end
  return total
end

-- µs for which the first task of some indexes could have been claimed, or the head of the first group, the longest of
-- them. The first one has waited longest, unless priorities say otherwise.
local function waited(entry, now)
  if not entry then return 0 end
  local due = has_state(entry) and call('HGET', K.task_state .. id_of(entry), 'due')
  return math.max(0, now - math.max(sequence_of(entry), tonumber(due or nil) or 0))
end

local function longest_wait(indexes, now, of_groups)
  local longest = 0
  for _, index in ipairs(indexes) do
    local first = call('ZRANGE', index, 0, 0)[1]
    if of_groups and first then first = call('LINDEX', K.lane .. first, -1) end
    longest = math.max(longest, waited(first, now))
  end
  return longest
end

-- `number` members from the place `from` on (the first is 0), and their scores.
local function members_of(indexes, from, number)
  local names, scores = {}, {}
  for _, index in ipairs(indexes) do
    local size = call('ZCARD', index)
    if #names < number and from < size then
      local found = call('ZRANGE', index, from, from + number - #names - 1, 'WITHSCORES')
      for i = 1, #found, 2 do names[#names + 1], scores[#scores + 1] = found[i], found[i + 1] end
    end
    from = math.max(0, from - size)
  end
  return names, scores
end

-- One step through the names in a hash, and where the next one begins, '0' at the end: HSCAN gives a small hash whole.
local function names_in(key, from, most)
  local step, names = call('HSCAN', key, from, 'COUNT', most), {}
  for i = 1, #step[2], 2 do names[#names + 1] = step[2][i] end
  return names, step[1]
end
