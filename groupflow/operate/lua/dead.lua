#!lua flags=no-writes
-- dead: a page of the dead letters, the latest death first. It looks at so many at most, even if few pass the
-- filter, and reads only what a list shows of each.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many to pass over · 2 how many to look at · 3 how many to return · 4 the filter, a JSON
--          object with any of: a part of the `reason` or `kind` in any case, `type`, `group` and `tenant`, and
--          `since` (µs): how long ago a letter died at most · 5 in place of the first, how many there are left, the
--          oldest: letters that come or go meanwhile don't move that place; '' otherwise
-- returns  { looked_at, letters: as `letter_of` has them, with place: how many were looked at with it; left: how
--          many are older than those }
local most, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local wanted, rows, looked, every = cjson.decode(ARGV[4]), {}, 0, call('ZCARD', K.dead)
local from = ARGV[5] == '' and tonumber(ARGV[1]) or math.max(0, every - ARGV[5])
local oldest = wanted.since and clock() - wanted.since or 0

local function has_in_it(text, part)
  return not part or string.find(string.lower(text), string.lower(part), 1, true)
end

local function passes(letter)
  return has_in_it(letter.reason, wanted.reason) and has_in_it(letter.kind, wanted.kind)
    and (not wanted.type or is_of_type(letter.type, wanted.type))
    and (not wanted.group or wanted.group == letter.group)
    and (not wanted.tenant or wanted.tenant == (letter.tenant or ''))
end

local found = call('ZRANGE', K.dead, from, from + most - 1, 'REV', 'WITHSCORES')
for i = 1, #found, 2 do
  if #rows == limit then break end
  if tonumber(found[i + 1]) < oldest then -- and so are all behind it
    every = from + looked
    break
  end
  looked = looked + 1
  local letter = letter_of(found[i], found[i + 1])
  if passes(letter) then
    letter.place = looked
    rows[#rows + 1] = named(letter)
  end
end
return named({ looked_at = looked, letters = rows, left = math.max(0, every - from - looked) })
