-- Behind the rules in scripts that cancel tasks.

-- Notes that a task is to be cancelled, who wants that and why (JSON, a list), and since when; and tells daemons. A
-- person's request stands before that of a newer task, which is a text. Returns whether that is new.
local function request_cancel(id, asked, now)
  local is_new = byte(call('HGET', K.cancels, id) or '"') == byte('"')
  if is_new then call('HSET', K.cancels, id, sub(asked, 1, -2) .. ',"' .. digits(now) .. '"]') end
  tell('cancel:' .. id)
  return is_new
end
