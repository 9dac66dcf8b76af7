#!lua flags=no-writes
-- tenant_figures: what of some tenants waits for its turn and runs, and their limits.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the tenants, each its scope and name
-- returns  { at (now), rows, one a tenant: what `figures_of` has }
local now, rows = clock(), {}
for _, tenant in ipairs(ARGV) do rows[#rows + 1] = named(figures_of(tenant, now)) end
return { now, rows }
