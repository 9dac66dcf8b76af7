#!lua flags=allow-oom
-- resume: let a paused group, or everything, go on. A group paused by name stays so when everything
-- is resumed.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group, '' for everything
-- returns  1, or 0 if it was not paused
local resumed
call('ZREM', K.resumes, ARGV[1])
if ARGV[1] == '' then
  resumed = call('DEL', K.paused_all)
else
  resumed = call('HDEL', K.paused, ARGV[1])
  place(ARGV[1], clock())
end
wake()
return resumed
