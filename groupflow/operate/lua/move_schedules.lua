#!lua
-- move_schedules: move schedules to the partition of their ticks. No daemon runs meanwhile. A row that is `gone`
-- kept older configurations from a schedule that lies elsewhere, and is of no use any more.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'out'
--          or 1 'in' · then what 'out' packed, one argument a schedule
--          or 1 'done' · then names
-- returns  of 'out': rows of { name, group, packed: '' of what is gone }, a thousand at most; else nothing
if ARGV[1] == 'out' then
  local rows = {}
  for _, name in ipairs(call('ZRANGE', K.schedules, 0, 999)) do
    local row = K.schedule .. name
    local packed = ''
    if not call('HGET', row, 'gone') then
      local due = digits(call('ZSCORE', K.schedules, name))
      packed = cmsgpack.pack({ name = name, due = due, row = call('HGETALL', row) })
    end
    rows[#rows + 1] = { name, call('HGET', row, 'group') or '', packed }
  end
  return rows
end
if ARGV[1] == 'in' then
  for i = 2, #ARGV do
    local schedule = cmsgpack.unpack(ARGV[i])
    forget_schedule(schedule.name)
    call('HSET', K.schedule .. schedule.name, unpack(schedule.row))
    call('ZADD', K.schedules, schedule.due, schedule.name)
  end
  return
end
for i = 2, #ARGV do forget_schedule(ARGV[i]) end
