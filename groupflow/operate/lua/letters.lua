-- Behind the facts in scripts that look at dead letters: what a list shows of one.

-- How many attempts failed, and whether it died at the door, counted in its errors: older versions didn't
-- write them down.
local function count_errors(id, attempt)
  local life, rejected, failed = K.life .. id, false, 0
  local length = call('HSTRLEN', life, 'errors')
  if length > 0 and length <= READ then
    local is_sound, errors = pcall(cjson.decode, call('HGET', life, 'errors'))
    for i, error in ipairs(is_sound and errors or {}) do
      if error.error ~= 'rejected' then failed = failed + 1 elseif i == 1 then rejected = true end
    end
  end
  return math.max(failed, attempt), rejected
end

-- What lists show of a letter, by name.
local function letter_of(id, died)
  local kept = call('HMGET', K.life .. id, 'group', 'type', 'tenant', 'attempts', 'door', 'attempt', 'kind')
  local task_type, tenant = kept[2], kept[3] or ''
  if not task_type then task_type, tenant = facts_in_envelope(id) end
  local attempts, at_door = tonumber(kept[4] or nil), kept[5] == '1'
  if not attempts then attempts, at_door = count_errors(id, tonumber(kept[6] or nil) or 0) end
  return {
    id = id, type = task_type, group = some(kept[1] or ''), tenant = some(tenant), reason = reason_of(id),
    kind = kept[7] or '', attempts = attempts, died_at = died, died_at_the_door = at_door and 1 or 0,
  }
end
