-- burst_buffer.lua of Forebay: Slurm 22.05 and later, Lua 5.1 to 5.4.
-- Made by "bbctl slurm install-lua", which writes it again: settings stand below.
--
-- job_process, pools and paths run inside slurmctld, with its locks held and without a
-- timeout: they read text and a file, and call nothing. All others run in processes of
-- their own, which Slurm may end at any moment and start again from the beginning: they
-- run bbctl, which records the finished steps by job and stage.
--
-- A hook whose time is up gets TERM, and its commands with it; a result within
-- ten milliseconds counts. So only the last output of a command counts as success.

--@settings
--@directives

local prefix = "forebay: "
local unpack = unpack or table.unpack

-- quote makes one word of a text for sh(1).
local function quote(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

local function is_number(text) return type(text) == "string" and text:find("^%d+$") ~= nil end

-- value reads a text of flat JSON as bbctl prints it.
local function value(json, name)
	local from, to = json:find('"' .. name .. '":"', 1, true)
	if not from then return "" end
	local out, i = {}, to + 1
	local escapes = { n = "\n", r = " ", t = " ", b = " ", f = " " }
	while i <= #json do
		local c = json:sub(i, i)
		if c == '"' then return table.concat(out) end
		if c == "\\" then
			local e = json:sub(i + 1, i + 1)
			if e == "u" then
				local code = tonumber(json:sub(i + 2, i + 5), 16) or 63
				out[#out + 1] = code < 128 and string.char(code) or "?"
				i = i + 6
			else
				out[#out + 1] = escapes[e] or e
				i = i + 2
			end
		else
			out[#out + 1] = c
			i = i + 1
		end
	end
	return table.concat(out)
end

-- run runs a verb of bbctl and returns how it ended ("done", "busy", "failed") and its
-- output. Lua 5.1 has no exit status of io.popen, so the shell prints it behind all
-- else; if the shell was ended too, there is none, and that is a failure.
local function run(verb, job, ...)
	local words = {}
	for _, w in ipairs(settings.bbctl) do words[#words + 1] = quote(w) end
	for _, w in ipairs { "slurm", verb, "--folder", settings.folder, "--json" } do words[#words + 1] = quote(w) end
	if job then
		if not is_number(job) then return "failed", "job id " .. tostring(job) .. " is no number" end
		words[#words + 1] = "--job " .. job
	end
	for _, w in ipairs { ... } do words[#words + 1] = quote(w) end
	local pipe, why = io.popen(table.concat(words, " ") .. '; echo " exit $?"', "r")
	if not pipe then return "failed", "cannot run bbctl: " .. tostring(why) end
	local text = pipe:read("*a") or ""
	pipe:close()
	local out, status = text:match("^(.*) exit (%d+)\n$")
	if not status then return "failed", "slurm " .. verb .. " was ended before it had finished" end
	local state, message = value(out, "state"), value(out, "message")
	if status == "0" and (state == "done" or state == "busy") then return state, message end
	if status == "127" then message = "there is no " .. settings.bbctl[1] end
	if message == "" then message = "bbctl slurm " .. verb .. " ended with status " .. status end
	return "failed", message
end

-- answer is a hook's result: the message only of a failure, since Slurm shows it.
local function answer(state, message)
	if state == "done" then return slurm.SUCCESS end
	return slurm.ERROR, prefix .. message
end

local function read_file(name)
	local f = io.open(name, "rb")
	if not f then return nil end
	local text = f:read("*a")
	f:close()
	return text
end

-- Inside slurmctld ---------------------------------------------------------------------

function slurm_bb_job_process(job_script)
	local text = read_file(job_script)
	if not text then return slurm.ERROR, prefix .. "the job's script cannot be read" end
	local problems = directives.check(text, {
		words = settings.words, need_pool = true, pools = settings.pools, profiles = settings.profiles,
	})
	local lines = {}
	for _, p in ipairs(problems) do
		if not p.warning then lines[#lines + 1] = prefix .. directives.describe(p) end
	end
	if #lines > 0 then return slurm.ERROR, table.concat(lines, "\n") end
	return slurm.SUCCESS
end

function slurm_bb_pools()
	local text = read_file(settings.folder .. "/pools.json")
	if not text or text == "" then return slurm.ERROR, prefix .. "no pools are known yet: is bbctl slurm tend running?" end
	return slurm.SUCCESS, text
end

function slurm_bb_paths(job_id, job_script, path_file)
	-- A failure would hold the job without a word. A job without its variables fails, and
	-- prints the reason; pre_run fails before that, since setup has not run.
	local text = is_number(job_id) and read_file(settings.folder .. "/" .. job_id .. ".env") or ""
	local f = io.open(path_file, "wb")
	if f then
		f:write(text)
		f:close()
	end
	return slurm.SUCCESS
end

-- Outside of slurmctld -----------------------------------------------------------------

function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
	local args = { "--uid", uid, "--gid", gid, "--bytes", bb_size, "--script", job_script }
	if pool and pool ~= "" and pool ~= "(null)" then
		args[#args + 1] = "--pool"
		args[#args + 1] = pool
	end
	-- A script whose symbols Slurm has replaced is no file of its state, but one in memory.
	if tostring(job_script):find("^/proc/") then args[#args + 1] = "--expanded" end
	local state, message = run("setup", job_id, unpack(args))
	if state == "done" then run("pools") end
	return answer(state, message)
end

-- Slurm 24.05 and later ask with test_data_in how far it is. Before, a hook lasts as long
-- as its work.
function slurm_bb_data_in(job_id)
	if settings.poll then
		local state, message = run("data-in", job_id, "--wait", "1s")
		if state == "busy" then state = "done" end
		return answer(state, message)
	end
	return answer(run("data-in", job_id))
end

local function poll(verb, job_id)
	local state, message = run(verb, job_id, "--wait", "1s")
	if state == "busy" then return slurm.SUCCESS, "BUSY" end
	return answer(state, message)
end

function slurm_bb_test_data_in(job_id) return poll("data-in", job_id) end

function slurm_bb_real_size(job_id)
	local state, message = run("real-size", job_id)
	if state == "done" then return slurm.SUCCESS, message end
	return answer(state, message)
end

function slurm_bb_pre_run(job_id) return answer(run("pre-run", job_id)) end

function slurm_bb_post_run(job_id) return answer(run("post-run", job_id)) end

-- A failed step here would be torn down at once (Flags=TeardownFailure): the daemons try for
-- as long as there are data to save, and if bbctl is ended itself, it is run again.
local function keep_on(job_id, wait)
	local pause = 1
	while true do
		local state, message = run("data-out", job_id, "--wait", wait)
		if state ~= "failed" then return state, message end
		if message:find("nothing is known of it", 1, true) then return state, message end
		if not os.execute("sleep " .. pause) then return state, message end
		pause = math.min(2 * pause, 60)
		if settings.poll then return "busy", message end
	end
end

function slurm_bb_data_out(job_id)
	if settings.poll then
		local state, message = keep_on(job_id, "1s")
		if state == "busy" then state = "done" end
		return answer(state, message)
	end
	return answer(keep_on(job_id, "0s"))
end

function slurm_bb_test_data_out(job_id)
	local state, message = keep_on(job_id, "1s")
	if state == "busy" then return slurm.SUCCESS, "BUSY" end
	return answer(state, message)
end

function slurm_bb_job_teardown(job_id, job_script, hurry)
	local state, message
	if hurry == "true" then
		state, message = run("teardown", job_id, "--hurry")
	else
		state, message = run("teardown", job_id)
	end
	if state == "done" then run("pools") end
	return answer(state, message)
end

-- Later versions put a uid and a gid before the words of "scontrol show bbstat".
function slurm_bb_get_status(...)
	local words = { ... }
	if settings.status_ids then words = { select(3, ...) } end
	if not is_number(words[1]) then return slurm.ERROR, "say for which job: scontrol show bbstat JOB" end
	local state, message = run("status", words[1])
	if state == "done" then return slurm.SUCCESS, message end
	return slurm.ERROR, prefix .. message
end
