#!lua flags=allow-oom
-- limit: give a group, a tenant or a type limits other than the configured ones, for so long; or end them. They
-- replace what was set by hand before.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 'g' and a group, 't' and a tenant's name, or 'y' and a pattern of types · 2 for how long (µs), ''
--          to end them · 3 by whom
--          4 tasks at once, '-' as configured · 5 µs between two starts, 0 for no rate, '-' as configured
--          6 µs that a start may come before its time, '-' as configured · 7 the rate as it was written
--          8 how many may be limited so at once
-- returns  1; 0 if there was nothing to end; -1 if as many are limited as may be
local refusal = other_layout()
if refusal then return refusal end
local now, whose = clock(), ARGV[1]
local is_known = call('HEXISTS', K.by_hand, whose) == 1
if ARGV[2] == '' then
  if not is_known then return 0 end
  end_by_hand({ whose }, ARGV[3], now)
  return 1
end
if not is_known and call('HLEN', K.by_hand) >= tonumber(ARGV[8]) then return -1 end
local text = table.concat({ digits(now + ARGV[2]), ARGV[4], ARGV[5], ARGV[6], digits(now), ARGV[7] }, ' ')
note_by_hand('began', whose, text, ARGV[3])
begin_by_hand(whose, text .. '\n' .. ARGV[3], now)
return 1
