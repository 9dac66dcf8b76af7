-- Behind the session rules in every script that settles claims: where a task leaves its worker.

local plain_ended, grouped_ended = 0, 0

local function count_end(group)
  if group == '' then plain_ended = plain_ended + 1 else grouped_ended = grouped_ended + 1 end
end

-- Takes what ended here off the running, and puts what waits again among the queued.
local function write_counts(requeued)
  if plain_ended > 0 then
    call('HINCRBY', K.count, 'running_plain', -plain_ended)
    if requeued then call('HINCRBY', K.count, 'queued_plain', plain_ended) end
  end
  if grouped_ended > 0 then
    call('HINCRBY', K.count, 'running_grouped', -grouped_ended)
    if requeued then call('HINCRBY', K.count, 'queued_grouped', grouped_ended) end
  end
end

-- The life of a task from here on: its place, and whatever has changed.
local function keep_life(element, group, ...)
  call('HSET', K.life .. id_of(element), 'arrival', string.sub(element, 1, 16), 'group', group, ...)
end
