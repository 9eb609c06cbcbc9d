-- Directives of job scripts, checked where nothing may be called: inside slurmctld.
-- This reports the same as Parse (directive.go), in the same words, for Lua 5.1 to 5.4; a
-- test compares the two. It reads, and does nothing else.

local directives = {}
do

local buffer_keys = {
	"type", "access_mode", "capacity", "pool", "profile", "backing", "compression", "durability", "replicas", "flush_limit", "dirty_age",
	"existing", "shared", "flush",
}

local function list(first, rest)
	local all = { first }
	for _, v in ipairs(rest) do all[#all + 1] = v end
	return all
end

local function set(values)
	local s = {}
	for _, v in ipairs(values) do s[v] = true end
	return s
end

local function command(name, options, required, flags)
	return { name = name, options = options, has = set(options), required = required or {}, flags = flags or {}, flag = set(flags or {}) }
end

local job_command = command("jobbb", list("name", list("warn", buffer_keys)))
local warn_signals = set { "USR1", "USR2", "TERM", "INT", "HUP", "ALRM", "CONT", "WINCH" }
local use_command = command("persistentbb", { "name", "type", "access_mode" }, { "name" })
local create_command = command("create_persistent", list("name", buffer_keys), { "name" })
local destroy_command = command("destroy_persistent", { "name" }, { "name" }, { "hurry" })
local in_command = command("stage_in", { "type", "source", "destination", "on_error" }, { "source", "destination" })
local out_command = command("stage_out", { "type", "source", "destination", "on" }, { "source", "destination" })

local commands = {
	jobbb = job_command, jobdw = job_command,
	persistentbb = use_command, persistentdw = use_command,
	create_persistent = create_command, destroy_persistent = destroy_command,
	stage_in = in_command, copy_in = in_command,
	stage_out = out_command, copy_out = out_command,
}

local key_aliases = { access = "access_mode", pfs = "backing" }

local ignored_keys = set {
	"ldbalance", "modified_threshold", "optimization_strategy", "read_ahead", "requires", "sync_on_close", "sync_to_pfs",
	"write_window_length", "write_window_multiplier",
}

local max_directives = 256
local max_name = 32

local function starts(text, prefix) return text:sub(1, #prefix) == prefix end

local parser = {}
parser.__index = parser

function parser:report(column, reason, remedy)
	self.flawed, self.failed = true, true
	self.problems[#self.problems + 1] = { line = self.line, column = column, reason = reason, remedy = remedy or "", order = #self.problems }
end

function parser:warn(column, reason, remedy)
	self.problems[#self.problems + 1] =
		{ line = self.line, column = column, reason = reason, remedy = remedy or "", warning = true, order = #self.problems }
end

local function get(said, key)
	for _, o in ipairs(said.list) do
		if o.key == key then return o end
	end
end

-- split returns the words of a line with their columns.
local function split(rest, start)
	local words, at = {}, 1
	while true do
		local from, to = rest:find("[^ ]+", at)
		if not from then return words end
		words[#words + 1] = { value = rest:sub(from, to), column = start + from }
		at = to + 1
	end
end

local function has_command(text)
	local trimmed = text:gsub("^[ \t]+", "")
	if trimmed == text then return false end
	return commands[trimmed:match("^[^ \t\r]*")] ~= nil
end

-- word cuts the word off that makes a line a directive of this site.
function parser:word(text)
	for _, w in ipairs(self.o.words) do
		if starts(text, w) then return w, text:sub(#w + 1) end
	end
	return "", text
end

function parser:late(line, ended)
	local text = line:gsub("^[ \t]+", "")
	if not starts(text, "#") then return end
	local word, rest = self:word(text:sub(2))
	if word == "" or not has_command(rest) then return end
	local column = #line - #text + 1
	if column > 1 and self.line == ended then
		self:report(column, "a blank stands before #" .. word .. ", so Slurm takes the line for the script's first command", "begin the line with #" .. word)
		return
	end
	self:report(column, "the directive comes after line " .. ended .. ", which is no comment: Slurm does not see it", "move it up, just below the first line")
end

function parser:foreign(line)
	for _, w in ipairs { "BB", "DW" } do
		if starts(line, "#" .. w) and has_command(line:sub(#w + 2)) then
			self:warn(1, "#" .. w .. " lines are ignored here", "write #" .. self.o.words[1])
		end
	end
end

-- text refuses lines that Slurm reads otherwise than they look; nil: the rest is not worth reading.
function parser:text(rest, start)
	if rest:sub(-1) == "\r" then
		self:report(start + #rest, "the line ends as on DOS", "run dos2unix on the script")
		return
	end
	if rest:sub(-1) == "\\" then
		self:report(start + #rest, "the line goes on in the next one: Slurm joins them, its hooks see two", "write all of it in one line")
		return
	end
	local tab = rest:find("\t", 1, true)
	if tab then
		self:report(start + tab, "a tab: to Slurm it is a part of the word before it", "write blanks")
		rest = rest:gsub("\t", " ")
	end
	for i = 1, #rest do
		local c = rest:byte(i)
		if c < 32 or c == 127 then
			self:report(start + i, "a control character", "remove it")
			return
		elseif c == 92 then
			self:report(start + i, "a backslash: it would stop Slurm from replacing %j and the like", "remove it")
			return
		elseif c == 34 or c == 39 or c == 96 then
			self:report(start + i, "a quotation mark: nothing is unquoted here, it would be a part of the name", "remove it; names with blanks cannot be given")
			return
		end
	end
	return rest
end

function parser:option(said, w)
	local key, value = w.value:match("^([^=]*)=(.*)$")
	if not key then
		if said.command.flag[w.value] then
			said.list[#said.list + 1] = { key = w.value, value = "", column = w.column, value_at = w.column }
			return
		end
		self:report(w.column, '"' .. w.value .. '" is no option', "options are written key=value, without blanks")
		return
	end
	local o = { key = key_aliases[key] or key, value = value, column = w.column, value_at = w.column + #key + 1 }
	if value:find("capacity=", 1, true) or value:find("pool=", 1, true) then
		self:report(o.value_at, "Slurm searches the whole line for capacity= and pool=, and would find them here", "use another name")
	elseif ignored_keys[key] then
		self:warn(w.column, key .. " is ignored: it has no meaning here")
	elseif not said.command.has[o.key] then
		local all = {}
		for _, k in ipairs(said.command.options) do all[#all + 1] = k end
		for _, k in ipairs(said.command.flags) do all[#all + 1] = k end
		self:report(w.column, said.command.name .. " has no option " .. key, "it has " .. table.concat(all, ", "))
	elseif get(said, o.key) then
		self:report(w.column, key .. " is given twice")
	elseif value == "" then
		self:report(o.value_at, key .. " is empty")
	else
		said.list[#said.list + 1] = o
	end
end

local function plain_name(name) return #name <= max_name and name:find("^[%w_][%w_%-]*$") ~= nil end

local function variable_name(name) return (name:gsub("%-", "_")) end

function parser:ignored(said)
	local o = get(said, "type")
	if o then
		if o.value == "xfs" or o.value == "gfs2" or o.value == "lustre" then
			self:warn(o.column, "type=" .. o.value .. " is ignored: a buffer has a namespace of its own")
		elseif o.value == "cache" then
			if not get(said, "backing") then
				self:report(o.column, "type=cache is in front of a store, but none is named", "add backing=/path or backing=s3://bucket/prefix")
			end
		elseif o.value ~= "scratch" then
			self:report(o.value_at, "type=" .. o.value .. " is not known", "write type=scratch")
		end
	end
	o = get(said, "access_mode")
	if o then
		for mode in (o.value .. ","):gmatch("([^,]*),") do
			if mode == "private" or mode == "ldbalance" then
				self:warn(o.column, mode .. " is ignored: all nodes of the job see all files of a buffer")
			elseif mode ~= "striped" then
				self:report(o.value_at, 'access_mode "' .. mode .. '" is not known', "write access_mode=striped")
			end
		end
	end
end

local is_buffer_key = set(buffer_keys)

function parser:with_profile(said)
	local o = get(said, "profile")
	if not o then return end
	local text = self.o.profiles[o.value]
	if not text then
		self:report(o.value_at, 'this site has no profile "' .. o.value .. '"', "leave it out, or ask the administrator")
		return
	end
	for _, w in ipairs(split(text, 0)) do
		local key, value = w.value:match("^([^=]*)=?(.*)$")
		if not get(said, key) and is_buffer_key[key] and key ~= "profile" then
			said.list[#said.list + 1] = { key = key, value = value, column = o.column, value_at = o.value_at }
		end
	end
end

local units = { k = 1, m = 2, g = 3, t = 4, p = 5 }

function parser:size(o)
	local digits = o.value:match("^%d*")
	local unit = o.value:sub(#digits + 1):lower()
	local what = o.key .. " " .. o.value
	if digits == "" then
		self:report(o.value_at, what .. " is no size", "write a whole number and K, M, G, T or P, as in 100GiB")
		return
	elseif unit:find("^[.,]") then
		if o.key == "capacity" then
			what = what .. " is no whole number: Slurm would read " .. digits .. " bytes"
		else
			what = what .. " is no whole number"
		end
		self:report(o.value_at, what, "write 2560MiB for 2.5GiB")
		return
	elseif unit == "n" or unit == "node" or unit == "nodes" then
		self:report(o.value_at, what .. " counts nodes, and Slurm would take that for 8 EiB", "write a size, as in 100GiB")
		return
	end
	local factor = 1.0
	if unit ~= "" then
		local power, tail = units[unit:sub(1, 1)], unit:sub(2)
		if power and (tail == "" or tail == "ib") then
			factor = 1024.0 ^ power
		elseif power and tail == "b" then
			factor = 1000.0 ^ power
		else
			self:report(o.value_at, what .. " has a unit that is not known, and Slurm would take it for bytes", "write K, M, G, T or P, as in 100GiB")
			return
		end
	end
	local n = tonumber(digits) * 1.0
	if n * factor > 2.0 ^ 60 then
		self:report(o.value_at, what .. " is more than 1 EiB")
	elseif n == 0 then
		self:report(o.value_at, what .. " is nothing", "leave it out, or write a size, as in 100GiB")
	end
end

function parser:choice(said, key, values)
	local o = get(said, key)
	if not o then return values[1] end
	for _, v in ipairs(values) do
		if v == o.value then return v end
	end
	self:report(o.value_at, '"' .. o.value .. '" is no value of ' .. key, "write " .. key .. "=" .. table.concat(values, " or " .. key .. "="))
end

local symbol_letters = "Aadjux%"

function parser:symbols(o)
	if self.o.expanded then return true end
	local i = 1
	while i <= #o.value do
		if o.value:sub(i, i) == "%" then
			local c = o.value:sub(i + 1, i + 1)
			if c == "" or not symbol_letters:find(c, 1, true) then
				self:report(o.value_at + i - 1, "a per cent sign before something that Slurm does not replace",
					"write %j job, %A array job, %a array task, %u user, %x job's name, %d folder, or %% for the sign")
				return false
			end
			i = i + 1
		end
		i = i + 1
	end
	return true
end

local no_store = "write /path, file:///path or s3://bucket/prefix"

-- store checks the outside of a URL; the rest of it, setup does.
function parser:store(o)
	local url = o.value
	if starts(url, "/") or starts(url, "%d") and not self.o.expanded then url = "file://" .. url end
	if not self:symbols(o) then return end
	local dollar = o.value:find("$", 1, true)
	if dollar then
		self:report(o.value_at + dollar - 1, "only variables of buffers are replaced here, and a store's name has none",
			"write %u for the user's name, %j for the job's id")
		return
	end
	local good = url:find("^file:///+[^/]") or url:find("^s3://[^/?#:@]") or url:find("^file://%%d") and not self.o.expanded
	if not good then self:report(o.value_at, o.value .. " names no store", no_store) end
end

function parser:duration(o)
	local n = o.value:match("^(%d+)[smh]$")
	if not n or #o.value > 6 or tonumber(n) == 0 then
		self:report(o.value_at, o.key .. " " .. o.value .. " is no duration", "write a whole number and s, m or h, as in 5m")
	end
end

-- flush_rule returns the clauses of a rule; nil: it is none.
local function flush_rule(text)
	if text:find("[%[%%\127-\255]") then return nil end
	local pattern, clauses = text:match("^(.-)/=(.*)$")
	if not pattern or pattern == "" or #pattern > 254 or pattern:find("/", 1, true) then return nil end
	local said, count = {}, 0
	for clause in (clauses .. ","):gmatch("([^,]*),") do
		local words = clause:gsub("%-", " ")
		local n, kind = words:match("^every (%d+)$"), nil
		if words == "last at end of job" or words == "when a second copy is gone" then
			kind = words
		elseif n and #n <= 18 and n:find("[1-9]") then
			kind = "every"
		elseif starts(words, "complete with ") and #words > 14 and #words <= 14 + 255 and not words:find("/", 1, true) then
			kind = "complete"
		end
		if not kind or said[kind] then return nil end
		said[kind], count = true, count + 1
	end
	if count == 1 and said.complete then return nil end
	return said
end

local max_flush_rules = 32

function parser:flush_rules(said)
	local o = get(said, "flush")
	if not o then return end
	local copies, count = false, 0
	for text in (o.value .. ";"):gmatch("([^;]*);") do
		local rule = flush_rule(text)
		if not rule then
			self:report(o.value_at, "flush " .. text .. " is no rule",
				"write flush=step-*/=every-5, or last-at-end-of-job after the equals sign; commas between clauses, semicolons between rules")
			return
		end
		copies, count = copies or rule["when a second copy is gone"], count + 1
	end
	local durability, replicas = get(said, "durability"), get(said, "replicas")
	if count > max_flush_rules then
		self:report(o.value_at, "flush has more than " .. max_flush_rules .. " rules", "use wildcards")
	elseif durability and durability.value == "flushed" then
		self:report(o.column, "flush holds files back, and durability=flushed has each close wait for its flush", "leave one of them out")
	elseif copies and not (replicas and replicas.value == "2") then
		self:report(o.column, "flush is about second copies, and the buffer has none", "add replicas=2")
	end
end

function parser:pool_remedy()
	if not self.o.pools or #self.o.pools == 0 then return "add pool= and its name" end
	return "write pool=" .. table.concat(self.o.pools, " or pool=")
end

function parser:buffer_options(said)
	self:with_profile(said)
	self:ignored(said)
	local o, pool = get(said, "capacity"), get(said, "pool")
	if o then
		self:size(o)
		if not pool and self.o.need_pool then
			self:report(o.column, "capacity without a pool, which Slurm refuses without a reason", self:pool_remedy())
		end
	end
	if pool then
		if not o then self:warn(pool.column, "pool is ignored without a capacity", "add capacity=100GiB") end
		if self.o.pools and not set(self.o.pools)[pool.value] then
			self:report(pool.value_at, 'there is no pool "' .. pool.value .. '"', self:pool_remedy())
		end
	end
	local backing = get(said, "backing")
	if backing then self:store(backing) end
	self:choice(said, "compression", { "none", "zstd", "s2" })
	self:choice(said, "durability", { "resident", "flushed" })
	self:choice(said, "existing", { "keep", "overwrite", "refuse" })
	self:choice(said, "shared", { "no", "yes" })
	self:choice(said, "replicas", { "1", "2" })
	o = get(said, "flush_limit")
	if o then
		o.value = o.value:gsub("/s$", "")
		self:size(o)
	end
	o = get(said, "dirty_age")
	if o then self:duration(o) end
	self:flush_rules(said)
	if backing then return end
	o = get(said, "durability")
	if o and o.value == "flushed" then
		self:report(o.column, "durability=flushed needs a store", "add backing=/path or backing=s3://bucket/prefix")
	end
	for _, key in ipairs { "compression", "flush_limit", "dirty_age", "existing", "shared", "flush" } do
		o = get(said, key)
		if o then self:warn(o.column, key .. " is ignored without backing") end
	end
end

-- reserved begins the names of buffers that belong to jobs.
local reserved = "job-"

function parser:persistent_name(said)
	local o = get(said, "name")
	local id = said.command.name .. " " .. variable_name(o.value)
	if not plain_name(o.value) or not o.value:find("^[a-z0-9][a-z0-9_%-]*$") then
		self:report(o.value_at, '"' .. o.value .. "\" cannot be a buffer's name", "use a-z, 0-9, - and _, at most " .. max_name)
	elseif starts(o.value, reserved) then
		self:report(o.value_at, 'names with "' .. reserved .. "\" are those of jobs' own buffers", "use another name")
	elseif self.declared[id] then
		self:report(o.value_at, said.command.name .. " names " .. o.value .. " twice")
	else
		self.declared[id] = true
		return o.value
	end
end

function parser:refer(said, key)
	local o = get(said, key)
	if not starts(o.value, "$") then return end
	local variable = o.value:match("^[^/]*")
	variable = variable:gsub("^%${(.*)}$", "$%1")
	local ref = { line = self.line, column = o.value_at, variable = variable }
	local name = variable:sub(2)
	local rest = name:match("^BB_(.*)$") or name:match("^DW_(.*)$")
	if name == "FOREBAY_BUFFER" or name == "FOREBAY_DIR" or rest == "JOB_STRIPED" or rest == "JOB_PRIVATE" then
		ref.job = true
	elseif rest and rest:find("^JOB_.") then
		ref.job, ref.name = true, rest:sub(5)
	elseif rest and starts(rest, "PERSISTENT_") then
		rest = rest:sub(12)
		if starts(rest, "STRIPED_") then rest = rest:sub(9) end
		if rest == "" then ref = nil else ref.name = rest end
	else
		ref = nil
	end
	if ref then
		self.refs[#self.refs + 1] = ref
	else
		self:report(o.value_at, variable .. " is no variable of buffers", "write $BB_JOB_STRIPED or $BB_PERSISTENT_STRIPED_name")
	end
end

function parser:stage(said, at, store)
	local o = get(said, "type")
	if o and o.value ~= "file" and o.value ~= "directory" then
		self:report(o.value_at, "type=" .. o.value .. " is not known",
			"leave it out: a file, or all of a directory, is copied; of a list, write a line for each")
	end
	o = get(said, store)
	if starts(o.value, "$") then
		self:report(o.value_at, store .. " of " .. said.command.name .. " must be outside of buffers", no_store)
	else
		self:store(o)
	end
	o = get(said, at)
	if not starts(o.value, "$") then
		self:report(o.value_at, at .. " of " .. said.command.name .. " must be in a buffer", "begin it with $BB_JOB_STRIPED/ or $BB_PERSISTENT_STRIPED_name/")
		return
	end
	local path = o.value:match("^[^/]*/(.*)$") or ""
	local offset = o.value_at + #o.value - #path
	local dollar = path:find("$", 1, true)
	if dollar then
		self:report(offset + dollar - 1, "a variable is replaced at the beginning only", "write %u for the user's name, %j for the job's id")
	end
	self:symbols(o)
	if ("/" .. path .. "/"):find("/../", 1, true) then
		self:report(offset, '".." may lead out of the buffer', "write the path without it")
	end
end

function parser:carry(said)
	local c = said.command
	if c == job_command then
		if self.job then
			self:report(said.column, "a second jobbb line: a job has one buffer", "add up the capacities in one line")
			return
		end
		self:buffer_options(said)
		local o = get(said, "name")
		if o and not plain_name(o.value) then
			self:report(o.value_at, '"' .. o.value .. "\" cannot be a part of a variable's name", "use letters, digits, - and _, at most " .. max_name)
		end
		local warn = get(said, "warn")
		if warn then
			local text = warn.value:gsub("^B:", "")
			local signal, seconds = text:match("^([^@]*)@(%d+)$")
			if not warn_signals[signal or text] or seconds and #seconds > 5 then
				self:report(warn.value_at, "warn " .. warn.value .. " is no signal",
					"write warn=USR1, warn=B:USR1 for the script itself, or warn=USR1@120 for 120 seconds before the end")
			end
			if not get(said, "backing") then self:warn(warn.column, "warn is ignored without backing") end
		end
		self.job = { name = o and variable_name(o.value) or "" }
	elseif c == use_command then
		self:ignored(said)
		local name = self:persistent_name(said)
		if name then self.persistent[variable_name(name)] = true end
	elseif c == create_command then
		self:buffer_options(said)
		local name = self:persistent_name(said)
		if name then self.persistent[variable_name(name)] = true end
	elseif c == destroy_command then
		self:persistent_name(said)
	elseif c == in_command then
		self:stage(said, "destination", "source")
		self:choice(said, "on_error", { "hold", "continue" })
		self:refer(said, "destination")
	else
		self:stage(said, "source", "destination")
		self:choice(said, "on", { "any", "success" })
		self:refer(said, "source")
	end
end

function parser:directive(word, rest)
	self.flawed = false
	if self.count > max_directives then
		self:report(1, "the script has more than " .. max_directives .. " directives")
		return
	end
	local start = 1 + #word
	rest = self:text(rest, start)
	if not rest then return end
	if rest ~= "" and rest:sub(1, 1) ~= " " then
		self:report(start + 1, "no blank stands after #" .. word, "write #" .. word .. " and a blank, or, if it is a comment, # " .. word)
		return
	end
	local words = split(rest, start)
	if #words == 0 then
		self:warn(1, "the directive is empty")
		return
	end
	local c = commands[words[1].value]
	if not c then
		self:report(words[1].column, '"' .. words[1].value .. '" is no command',
			"write jobbb, persistentbb, create_persistent, destroy_persistent, stage_in or stage_out")
		return
	end
	local said = { command = c, column = words[1].column, list = {} }
	for i = 2, #words do self:option(said, words[i]) end
	for _, key in ipairs(c.required) do
		if not self.flawed and not get(said, key) then self:report(said.column, c.name .. " needs " .. key .. "=") end
	end
	if not self.flawed then self:carry(said) end
end

function parser:references()
	if self.failed then return end
	for _, ref in ipairs(self.refs) do
		self.line = ref.line
		if ref.job then
			if not self.job then
				self:report(ref.column, ref.variable .. " is used, but the job has no buffer", "add a jobbb line")
			elseif ref.name and self.job.name ~= ref.name then
				self:report(ref.column, ref.variable .. " is used, but no jobbb line has this name", "add name=" .. ref.name .. " to it, or write $BB_JOB_STRIPED")
			end
		elseif not self.persistent[ref.name] then
			self:report(ref.column, ref.variable .. " is used, but the job does not use this buffer", "add a line: persistentbb name=" .. ref.name)
		end
	end
end

-- check reads a script. It returns the problems, each with line, column, reason, remedy and
-- warning, and how many directives there are.
function directives.check(script, options)
	local p = setmetatable({
		o = { words = options.words or { "BB" }, need_pool = options.need_pool, pools = options.pools, profiles = options.profiles or {}, expanded = options.expanded },
		problems = {}, line = 0, count = 0, declared = {}, persistent = {}, refs = {},
	}, parser)
	local ended, continued = 0, false
	for line in (script .. "\n"):gmatch("([^\n]*)\n") do
		p.line = p.line + 1
		if p.count > max_directives then break end
		if ended > 0 then
			p:late(line, ended)
		elseif line == "" or line == "\r" then
			-- Slurm does not see empty lines.
		elseif line:sub(1, 1) ~= "#" then
			ended = p.line
			p:late(line, ended)
		else
			local word, rest = p:word(line:sub(2))
			if word == "" then
				p:foreign(line)
			elseif continued then
				continued = rest:sub(-1) == "\\"
			else
				continued = rest:sub(-1) == "\\"
				p.count = p.count + 1
				p:directive(word, rest)
			end
		end
	end
	p:references()
	table.sort(p.problems, function(a, b)
		if a.line ~= b.line then return a.line < b.line end
		if a.column ~= b.column then return a.column < b.column end
		return a.order < b.order
	end)
	return p.problems, p.count
end

-- describe makes one line of a problem.
function directives.describe(p)
	local s = "line " .. p.line .. ", column " .. p.column .. ": " .. p.reason
	if p.remedy ~= "" then s = s .. " (" .. p.remedy .. ")" end
	return s
end

-- with_pool adds a pool to those directives that have a capacity and none.
function directives.with_pool(script, word, pool)
	local out, header = {}, true
	for line in (script .. "\n"):gmatch("([^\n]*)\n") do
		if line ~= "" and line:sub(1, 1) ~= "#" then header = false end
		if header and starts(line, "#" .. word) and line:find(" capacity=", 1, true) and not line:find("pool=", 1, true) then
			line = line:gsub(" +$", "") .. " pool=" .. pool
		end
		out[#out + 1] = line
	end
	if script:sub(-1) == "\n" then out[#out] = nil end
	return table.concat(out, "\n") .. (script:sub(-1) == "\n" and "\n" or "")
end

end
