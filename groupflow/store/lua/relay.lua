#!lua flags=allow-oom
-- relay: the oldest entries of the outbox, for the one daemon that publishes them. It says up to which number RabbitMQ has
-- confirmed all: those go first. If it dies, another one publishes the rest, and what was not said to be confirmed again.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 for how long no other daemon relays (µs), 0 to let others
--          · 4 the number up to which all is confirmed · 5 how many entries at most · 6 bytes at most; the first may have more
-- returns  { state, 1 or 0 where another daemon relays, the entries }
local PAGE = 8 -- entries that are read together: one may have a megabyte
local state, now = session_state(ARGV[1], ARGV[2]), clock()
if state ~= 'OK' then return { state, 0, {} } end
local number, confirmed, entries, bytes = sub(ARGV[2], 1, 16), tonumber(ARGV[4]), {}, 0
if is_taken('relay', ARGV[1], number, now) then return { state, 0, {} } end
take_role('relay', ARGV[1], number, now + ARGV[3])

local function read(from, to) return call('LRANGE', K.outbox, from, to) end

local most = tonumber(ARGV[5])

-- Drops what is confirmed: that very entry, and those in front of it. After lost writes it may not be here, and a clock
-- that is late may give lower numbers to what was never told.
local function drop()
  local number_here, dropped, page = 0, 0, nil
  repeat
    page = read(number_here, number_here + PAGE - 1)
    for _, entry in ipairs(page) do
      local number_of = tonumber(sub(entry, 1, 16))
      number_here, dropped = number_here + 1, dropped + #entry
      if number_of == confirmed then call('LPOP', K.outbox, number_here) end
      if number_of >= confirmed then return number_of == confirmed and dropped or 0 end
    end
  until #page < PAGE or number_here >= most
  return 0
end

local left = call('HINCRBY', K.count, 'outbox_bytes', confirmed > 0 and 0 - drop() or 0)
if left < 0.9 * OUTBOX_MOST and call('DEL', K.outbox_full) == 1 then
  wake()
  tell('pool')
end
repeat
  local page = read(#entries, math.min(#entries + PAGE, most) - 1)
  for _, entry in ipairs(page) do
    if #entries > 0 and bytes + #entry > tonumber(ARGV[6]) then return { state, 1, entries } end
    entries[#entries + 1], bytes = entry, bytes + #entry
  end
until #page < PAGE or #entries >= most
return { state, 1, entries }
