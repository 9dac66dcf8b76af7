#!lua flags=no-writes
-- tenants: a page of those that are counted apart: with a limit, closed by a handler, or all, if they take turns.
-- First those that stand, the first that may go on first; then those that have a turn; then those that only
-- run. It looks at so many entries at most. A tenant that comes or goes meanwhile may be missed, or shown twice.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 cursor, '0' to begin: a place times three, and what is walked (0 standing, 1 turns, 2 charged)
--          2 how many to look at · 3 the name that they must have, or '' for any
-- returns  { cursor of the next page, '' at the end; how many were looked at; the tenants, each its scope and name }
local WALKED = 3
local KINDS = { 'g', 'G', 'p', 'P' }
local at, most, name = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local walk, place = at % WALKED, math.floor(at / WALKED)
local found, looked = {}, 0

local function add(tenant)
  if name == '' or sub(tenant, 9) == name then found[#found + 1] = tenant end
end

-- The first kind of which a tenant has a turn. It may have turns of several: only the first one adds it.
local function first_turn(tenant)
  for _, kind in ipairs(KINDS) do
    if call('HEXISTS', K.turns, kind .. tenant) == 1 then return kind end
  end
end

local function stands(tenant) return call('ZSCORE', K.standing, tenant) and true or false end

local function is_first_charge(fence, tenant)
  local front = front_of(tenant)
  local first = call('ZRANGE', K.charges, '[' .. front .. '0', '(' .. front .. ':', 'BYLEX', 'LIMIT', 0, 1)[1]
  return first == front .. fence
end

if walk == 0 then
  local page = call('ZRANGE', K.standing, place, place + most - 1)
  for _, tenant in ipairs(page) do add(tenant) end
  looked, place = #page, place + #page
  if #page < most then walk, place = 1, 0 end
else
  local key = walk == 1 and K.turns or K.charged
  local page = call('HSCAN', key, digits(place), 'COUNT', most)
  for i = 1, #page[2], 2 do
    if walk == 1 then
      local kind, tenant = sub(page[2][i], 1, 1), sub(page[2][i], 2)
      if not stands(tenant) and first_turn(tenant) == kind then add(tenant) end
    else
      local fence, tenant = page[2][i], page[2][i + 1]
      if not stands(tenant) and not first_turn(tenant) and is_first_charge(fence, tenant) then add(tenant) end
    end
  end
  looked, place = #page[2] / 2, tonumber(page[1])
  if place == 0 then walk = walk + 1 end
end
return { walk < WALKED and digits(place * WALKED + walk) or '', looked, found }
