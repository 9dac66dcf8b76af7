-- Behind the prelude in the scripts that look at what waits: one index read behind another. To whoever
-- looks, what waits as a suspect is waiting like the rest, and goes first.

local READY = { K.suspect_groups, K.ready }
local PLAIN = { K.suspect_plain, K.ordered }
-- Of what daemons claim from these are all; what waits in pools comes behind them.
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

-- So many members from the place `from` on (the first is 0), each with its score behind it.
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
