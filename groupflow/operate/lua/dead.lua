#!lua flags=no-writes
-- dead: a page of the dead letters, the latest death first. It looks at so many at most, even if few pass the
-- filter, and reads only what a list shows of each.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many to pass over · 2 how many to look at · 3 how many to return · 4 the filter, a JSON
--          object with any of: a part of the `reason` or `kind`, and `type`, `group` and `tenant`
-- returns  { looked_at, letters: as `letter_of` has them, with place: how many were looked at with it }
local from, most, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, rows, looked = cjson.decode(ARGV[4]), {}, 0

-- A type matches whole, or by its beginning: `import.*`.
local beginning = wanted.type and string.match(wanted.type, '^(.*)%*$')
local function is_of_type(name)
  return not wanted.type or wanted.type == name or (beginning and sub(name, 1, #beginning) == beginning)
end

local function passes(letter)
  if wanted.reason and not string.find(letter.reason, wanted.reason, 1, true) then return false end
  if wanted.kind and not string.find(letter.kind, wanted.kind, 1, true) then return false end
  return is_of_type(letter.type)
    and (not wanted.group or wanted.group == letter.group)
    and (not wanted.tenant or wanted.tenant == letter.tenant)
end

local found = call('ZRANGE', K.dead, from, from + most - 1, 'REV', 'WITHSCORES')
for i = 1, #found, 2 do
  if #rows == limit then break end
  looked = looked + 1
  local letter = letter_of(found[i], found[i + 1])
  if passes(letter) then
    letter.place = looked
    rows[#rows + 1] = named(letter)
  end
end
return named({ looked_at = looked, letters = rows })
