#!lua
-- enqueue: make a batch of messages durable, in the order given. Each becomes a waiting task or a dead letter. A
-- message whose id is known already in its scope (waiting, running, dead not longer than the dedup window, or ended
-- within it) is dropped as a duplicate, so a batch may be run again. Where an id is another scope's, or that of a
-- letter that died earlier, the task gets a derived one: see `ids.lua`.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the daemon, which claims right behind this call, or '' · 2 the dedup window (µs) · 3 random
--          text, for a salt where there is none yet · 4 bytes that may wait for delays · 5 the reason of
--          a dead letter that there is no such room for · 6 'replies' where any asks for a reply · then ten a message: id · group ('' = plain)
--          · priority (µs, may be negative) · delay (µs) · 'aside' where a delay lets the group go on,
--          else '' · reason of a dead letter ('' = a task) · its errors (JSON) · envelope and body, or of one too
--          large for a script where the command in front of it put that (`laid` in `keeping.lua`) · its
--          type, tenant, rule, pool, and where its rule debounces, for how long and how long at most (µs)
--          (JSON), where they are to be known without reading that: of what makes a detour (`entering.lua`) for
--          more than a priority, and of a large message; then how many may wait in its group, where its rule bounds
--          that; eighth, where it has to start in time, µs from now on; ninth, where what runs makes way for it, after
--          how long that ends (µs); tenth, its origin (`facts.lua`). Where it makes a detour for that bound alone, this is only that number; else ''
--          · scope
-- returns  { tasks that wait, without those that wait for delays and shards that sleep; one row of 1 (taken),
--          0 (duplicate), the derived id under which it was taken, or that id in a list where its envelope has to be
--          put there first, a message; the places (from 1) of those
--          that there was no such room for; the arrival (µs) of the newest, 0 where none was taken; how many
--          waiting tasks they have replaced; the places of those whose group was full; 1 where the outbox is full, else 0 }
local refusal = other_layout()
if refusal then
  local bytes, at = laid(ARGV[14] or '-')
  if bytes and is_laid(at, bytes) then call('HDEL', K.tasks, at) end
  return refusal
end
if ARGV[6] ~= '' then call('HSET', K.count, 'replies', 1) end
return take_in(ARGV, 7)
