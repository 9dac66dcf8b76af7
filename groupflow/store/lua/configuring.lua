-- Behind the session rules in `register` and `tell`.

-- Replaces the limits of types, those of the names that begin with a `y`. Returns the other names and values.
local function configure_caps(flat, now)
  local others, wanted, known, changes = {}, {}, call('HGETALL', K.caps), 0
  for i = 1, #flat, 2 do
    if sub(flat[i], 1, 1) == 'y' then
      wanted['c' .. sub(flat[i], 2)] = flat[i + 1]
    else
      others[#others + 1], others[#others + 2] = flat[i], flat[i + 1]
    end
  end
  for i = 1, #known, 2 do
    if wanted[known[i]] == known[i + 1] then
      wanted[known[i]] = nil
    elseif sub(known[i], 1, 1) == 'c' then
      call('HDEL', K.caps, known[i])
      changes = changes + 1
    end
  end
  for name, value in pairs(wanted) do
    call('HSET', K.caps, name, value)
    changes = changes + 1
  end
  if changes > 0 then review_caps(now) end
  return others
end

-- Replaces the limits by those of this daemon's configuration: a flat list of names and values (JSON), '' where it says
-- nothing. Places groups that run, since more may run in them now, and the first that are held; a script places all
-- others when it meets them, or when their hold is over.
local function configure(packed, now)
  if packed == '' then return end
  local flat = configure_caps(cjson.decode(packed), now)
  local is_new = call('HLEN', K.limits) ~= #flat / 2
  for i = 1, #flat, 2 do is_new = is_new or call('HGET', K.limits, flat[i]) ~= flat[i + 1] end
  if not is_new then return end
  call('DEL', K.limits)
  for i = 1, #flat, 2 do call('HSET', K.limits, flat[i], flat[i + 1]) end
  may_limit, limits_made, tenants_made, may_cap, caps_made, may_drain = nil, nil, nil, nil, nil, nil
  if not is_draining() then call('UNLINK', K.drains) end -- nothing would read it
  if is_limiting() then charge_running() end
  -- Looks again at what waited for a tenant's turn by the old limits; at more of it when a script meets it.
  for _, tenant in ipairs(is_limiting() and call('ZRANGE', K.standing, 0, 9999) or {}) do
    tenants().turn(tenant, now)
  end
  local function place_running(claim)
    if claim.group ~= '' and place(claim.group, now) then wake_for(claim.group) end
  end
  each_claim(K.daemons, place_running)
  for _, pool in ipairs(pools()) do each_claim(K.pool_pullers .. pool, place_running) end
  for _, group in ipairs(call('ZRANGE', K.held, 0, 999)) do
    call('ZREM', K.held, group)
    if place(group, now) then wake_for(group) end
  end
end

-- Notes the types that this daemon has handlers of (JSON). What waits for one of them is due: `promote` makes it so.
local function announce(daemon, packed)
  local types, key = cjson.decode(packed), K.types .. daemon
  call('DEL', key)
  for _, task_type in ipairs(types) do call('HSET', key, task_type, 1) end
  if call('EXISTS', K.unknown) == 0 then return end
  for _, task_type in ipairs(types) do
    local since = call('ZSCORE', K.unknown, task_type)
    if since and call('EXISTS', K.unknown_tasks .. task_type) == 0 then
      call('ZREM', K.unknown, task_type)
    elseif since then
      call('ZADD', K.unknown, 0, task_type)
      tell('due')
    end
  end
end
