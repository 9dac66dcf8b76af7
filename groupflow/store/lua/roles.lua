-- Behind the prelude in scripts that one daemon at a time may call: that one keeps the role until so long after its last
-- call, or until its session ends. `segments` has by role until when (16 digits), the session's number, and the daemon.

-- Whether another daemon has a role.
local function is_taken(role, daemon, session, now)
  local kept = call('HGET', K.segments, role)
  if not kept or sub(kept, 18) == session .. ' ' .. daemon or tonumber(sub(kept, 1, 16)) <= now then return false end
  local number, name = string.match(sub(kept, 18), '^(%d*) (.*)$')
  return (tonumber(call('ZSCORE', K.daemons, name) or nil) or 0) > now and call('HGET', K.daemon .. name, 'session') == number
end

local function take_role(role, daemon, session, ends)
  call('HSET', K.segments, role, digits(ends) .. ' ' .. session .. ' ' .. daemon)
end
