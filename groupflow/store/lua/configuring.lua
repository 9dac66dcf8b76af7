-- Behind the session rules in `register` and `tell`.

-- Replaces the limits by those of this daemon's configuration: a flat list of names and values (JSON), '' where it says
-- nothing. Places groups that run, since more may run in them now, and the first that are held; a script places all
-- others when it meets them, or when their hold is over.
local function configure(packed, now)
  if packed == '' then return end
  local flat = cjson.decode(packed)
  local is_new = call('HLEN', K.limits) ~= #flat / 2
  for i = 1, #flat, 2 do is_new = is_new or call('HGET', K.limits, flat[i]) ~= flat[i + 1] end
  if not is_new then return end
  call('DEL', K.limits)
  for i = 1, #flat, 2 do call('HSET', K.limits, flat[i], flat[i + 1]) end
  may_limit, limits_made, tenants_made = nil, nil, nil
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
