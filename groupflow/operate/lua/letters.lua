-- Behind the names in scripts that look at dead letters: what a list shows of one, by name.
local function letter_of(id, died)
  local kept = call('HMGET', K.task_state .. id, 'group', 'type', 'tenant', 'attempts', 'door', 'kind')
  return {
    id = id, type = kept[2] or '', group = some(kept[1] or ''), tenant = some(kept[3] or ''), reason = reason_of(id),
    kind = kept[6] or '', attempts = tonumber(kept[4] or 0), died_at = died,
    died_at_the_door = tonumber(kept[5] or 0),
  }
end
