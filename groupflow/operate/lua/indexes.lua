-- Behind the prelude in scripts that look at waiting tasks: several indexes read as one. Suspects count as
-- waiting like the rest, and come first.

local READY = { K.suspect_groups, K.ready }
local PLAIN = { K.suspect_plain, K.ordered }
-- All indexes that daemons claim from; those of pools come behind them.
local OWN_READY, OWN_PLAIN = { unpack(READY) }, { unpack(PLAIN) }
for _, pool in ipairs(pools()) do
  READY[#READY + 1], READY[#READY + 2] = index_of('suspect_groups', pool), index_of('ready', pool)
  PLAIN[#PLAIN + 1], PLAIN[#PLAIN + 2] = index_of('suspect_plain', pool), index_of('ordered', pool)
end

local function count_in(indexes)
  local total = 0
  for _, index in ipairs(indexes) do total = total + call('ZCARD', index) end
  return total
end

-- `number` members from the place `from` on (the first is 0), each with its score behind it.
local function members_of(indexes, from, number)
  local found = {}
  for _, index in ipairs(indexes) do
    local size = call('ZCARD', index)
    local left = number - #found / 2
    if left > 0 and from < size then
      for _, value in ipairs(call('ZRANGE', index, from, from + left - 1, 'WITHSCORES')) do
        found[#found + 1] = value
      end
    end
    from = math.max(0, from - size)
  end
  return found
end
