-- Behind the rows and `taking` in scripts that make ticks.

-- What `take_in` takes for one tick of a row: its message, with the tick's time in its header.
local function message_of(row, id, text)
  local kept = call('HMGET', row, 'group', 'priority', 'delay', 'aside', 'envelope', 'facts', 'scope')
  local envelope, hole = kept[5], '"x-tick":""'
  local at = string.find(envelope, hole, 1, true)
  if at then envelope = sub(envelope, 1, at + #hole - 2) .. text .. sub(envelope, at + #hole - 1) end
  return { id, kept[1], kept[2], kept[3], kept[4], '', '', envelope, kept[6], kept[7] }
end

-- Makes ticks of a row, each { when (digits), id, kind, text }, the newest last, and puts them before its
-- runs. Returns the ids of their tasks, the newest arrival, and the ids of ticks that are dead letters, since their
-- group was full.
local function make(row, runs, ticks)
  local list, ids, full = {}, {}, {}
  for _, tick in ipairs(ticks) do
    for _, value in ipairs(message_of(row, tick[2], tick[4])) do list[#list + 1] = value end
  end
  local reply = take_in(list, 1)
  local taken, is_full = reply[2], {}
  for _, n in ipairs(reply[6]) do is_full[n] = true end
  for n, tick in ipairs(ticks) do
    if taken[n] ~= 0 then -- else its task is known already: another program wrote to our keys
      local id = type(taken[n]) == 'string' and taken[n] or tick[2]
      local told = is_full[n] and full or ids
      told[#told + 1] = id
      table.insert(runs, 1, { tick[1], id, tick[3], '', '' })
    end
  end
  call('HINCRBY', row, 'ticks', #ids + #full)
  return ids, reply[4], full
end
