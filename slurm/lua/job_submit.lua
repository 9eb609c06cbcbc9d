-- job_submit.lua of Forebay: reasons for the user at once, and the default pool.
-- Made by "bbctl slurm install-lua", which writes it again: settings stand below.
--
-- A site with a job_submit.lua of its own loads this file there,
--
--	dofile("/etc/slurm/forebay_submit.lua")
--
-- and begins slurm_job_submit with
--
--	local rc = forebay_job_submit(job_desc)
--	if rc ~= slurm.SUCCESS then return rc end
--
-- It runs inside slurmctld: it reads the job's text, and calls nothing.

--@settings
--@directives

-- ESLURM_INVALID_BURST_BUFFER_REQUEST
local refused = slurm.ESLURM_INVALID_BURST_BUFFER_REQUEST or slurm.ERROR

local function checked(text)
	if settings.default_pool ~= "" then
		text = directives.with_pool(text, settings.words[1], settings.default_pool)
	end
	local problems = directives.check(text, {
		words = settings.words, need_pool = true, pools = settings.pools, profiles = settings.profiles,
	})
	local rc = slurm.SUCCESS
	for _, p in ipairs(problems) do
		slurm.log_user("forebay: " .. (p.warning and "note: " or "") .. directives.describe(p):gsub("%%", "%%%%"))
		if not p.warning then rc = refused end
	end
	return rc, text
end

function forebay_job_submit(job_desc)
	for _, field in ipairs { "script", "burst_buffer" } do
		local text = job_desc[field]
		if type(text) == "string" and text:find("#" .. settings.words[1], 1, true) then
			local rc, new = checked(text)
			if rc ~= slurm.SUCCESS then return rc end
			if new ~= text then job_desc[field] = new end
		end
	end
	return slurm.SUCCESS
end

if not slurm_job_submit then
	function slurm_job_submit(job_desc, part_list, submit_uid) return forebay_job_submit(job_desc) end
	function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
end
