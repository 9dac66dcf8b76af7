-- Behind the prelude in `enqueue`: which messages wait for a delay, their own or that of one in front of
-- them, and whether there is room for them.

local delayed_bytes = tonumber(call('HGET', K.count, 'delayed_bytes') or nil) or 0

-- Whether the newest task of a lane waits for a delay, or behind one that does: whoever comes next
-- waits for it as well. Where nothing is delayed at all, that is known without a look.
local function is_behind_delay(group)
  if group == '' or delayed_bytes == 0 then return false end
  local newest = call('LINDEX', K.lane .. group, 0)
  return newest and has_life(newest) and call('HEXISTS', K.life .. id_of(newest), 'delayed_bytes') == 1
end

-- Whether so many bytes would be more than may wait for delays.
local function is_crowded(bytes, most) return delayed_bytes + bytes > most end

local function wait_for_delay(id, bytes)
  delayed_bytes = delayed_bytes + bytes
  put_on('delayed_bytes', id, bytes)
end
