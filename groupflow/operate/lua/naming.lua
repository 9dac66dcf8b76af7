-- In front of scripts that answer operators: names with their values, in a flat list. A name whose value is
-- nil is not in it.
local function named(facts)
  local list = {}
  for name, value in pairs(facts) do
    list[#list + 1] = name
    list[#list + 1] = value
  end
  return list
end

local function some(text) return text ~= '' and text or nil end

-- What lists show of a task's life, by name.
local LIFE = { 'attempt', 'crashes', 'lost_leases', 'stage', 'due', 'errors', 'reason', 'latest' }
local function life_of(id)
  local life, values = {}, call('HMGET', K.life .. id, unpack(LIFE))
  for i, name in ipairs(LIFE) do life[name] = values[i] or nil end
  if life.reason then life.reason = reason_of(id) end
  return named(life)
end
