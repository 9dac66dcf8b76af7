-- Behind the prelude where tasks are listed: what an envelope says in front of its body.

local LISTED = 65536 -- bytes; a field of a hash is read whole, and a body may have megabytes

-- The first line of a task's envelope; '' where there is none, or where it is too large to be read
-- for a list. Whoever looks at that one task sees it all.
local function facts_of(id)
  local length = call('HSTRLEN', K.tasks, id)
  if length == 0 or length > LISTED then return '' end
  return string.match(call('HGET', K.tasks, id), '^[^\n]*')
end
