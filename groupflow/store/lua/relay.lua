#!lua flags=allow-oom
-- relay: the oldest entries of the outbox, for the one daemon that publishes them. It says up to which number RabbitMQ has
-- confirmed all: those go first. If it dies, another one publishes the rest, and what was not said to be confirmed again.
-- `segments` has the number up to which follow-up tasks are made (`followed`): RabbitMQ may be away for longer than their
-- ids are known.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 for how long no other daemon relays (µs), 0 to let others
--          · 4 the number up to which all is confirmed · 5 how many entries at most · 6 bytes at most; the first may have more
--          · 7 the number up to which it has made follow-up tasks since this server leads, 0 for none
-- returns  { state, 1 or 0 where another daemon relays, the entries, the number up to which follow-up tasks are made }
local PAGE = 8 -- entries that are read together: one may have a megabyte
local state, now = session_state(ARGV[1], ARGV[2]), clock()
if state ~= 'OK' then return { state, 0, {}, 0 } end
local number, confirmed, entries, bytes = sub(ARGV[2], 1, 16), tonumber(ARGV[4]), {}, 0
if is_taken('relay', ARGV[1], number, now) then return { state, 0, {}, 0 } end
take_role('relay', ARGV[1], number, now + ARGV[3])

local function read(from, to) return call('LRANGE', K.outbox, from, to) end

local most = tonumber(ARGV[5])

-- The place of that very entry, from 1 on, and the bytes up to it; 0 where it isn't here. After lost writes it may not
-- be, and a clock that is late may give lower numbers to what was never told.
local function find(wanted)
  local place, size, page = 0, 0, nil
  repeat
    page = read(place, place + PAGE - 1)
    for _, entry in ipairs(page) do
      local number_of = tonumber(sub(entry, 1, 16))
      place, size = place + 1, size + #entry
      if number_of == wanted then return place, size end
      if number_of > wanted then return 0, 0 end
    end
  until #page < PAGE or place >= most
  return 0, 0
end

local place, size = 0, 0
if confirmed > 0 then place, size = find(confirmed) end
if place > 0 then call('LPOP', K.outbox, place) end
local left = call('HINCRBY', K.count, 'outbox_bytes', 0 - size)
local followed, known = tonumber(ARGV[7]), tonumber(call('HGET', K.segments, 'followed') or nil) or 0
if followed > math.max(known, confirmed) and find(followed) > 0 then
  known = followed
  call('HSET', K.segments, 'followed', digits(known))
end
if left < 0.9 * OUTBOX_MOST and call('DEL', K.outbox_full) == 1 then
  wake()
  tell('pool')
end
repeat
  local page = read(#entries, math.min(#entries + PAGE, most) - 1)
  for _, entry in ipairs(page) do
    if #entries > 0 and bytes + #entry > tonumber(ARGV[6]) then return { state, 1, entries, known } end
    entries[#entries + 1], bytes = entry, bytes + #entry
  end
until #page < PAGE or #entries >= most
return { state, 1, entries, known }
