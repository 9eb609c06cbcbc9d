#!/usr/bin/env bash
# A private Slurm cluster for tests, of Debian's packages: munged, slurmctld and a slurmd for
# each node. internal/slurmtest drives it. By hand:
#
#   slurm.sh tools           install missing tools (as root), else print them; exits 1 then
#   slurm.sh up DIR          bring a cluster up in DIR, and return when all nodes are idle
#   slurm.sh in DIR NODE CMD…  run a command as root where a node's slurmd runs; ctl: slurmctld's place
#   slurm.sh down DIR        take it down
#   slurm.sh run DIR         as up, in the foreground: it ends with this process
#
# Environment of up and run:
#   NODES='n1=/dir n2=/dir'  the nodes, and the folder of each that is its /run/forebay
#                            (default: n1 n2 n3, with folders in DIR)
#   USERS='alice bob'        users inside, with uids from 20001; none is added outside
#   EXTRA=file               lines to append to slurm.conf
#   FILES=folder             files to copy beside slurm.conf
#
# Everything lives in namespaces of its own (network, host name, mounts, processes), whose
# first process is recorded in DIR/init: with it, all of the cluster ends. Nothing listens
# outside, and the machine keeps its users. A node has a mount namespace besides, in which
# /run/forebay is its own.
set -euo pipefail

self=$(readlink -f "$0")
say() { printf 'slurm.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

tools() {
	local missing=() tool
	for tool in slurmctld slurmd sbatch munged unshare nsenter setpriv ip; do
		command -v "$tool" >/dev/null || missing+=("$tool")
	done
	[ ${#missing[@]} -eq 0 ] && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		local packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 util-linux) made=0
		# The packages would start daemons, which must not run on this machine.
		if [ ! -e /usr/sbin/policy-rc.d ]; then
			printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
			chmod +x /usr/sbin/policy-rc.d
			made=1
		fi
		"$(dirname "${BASH_SOURCE[0]}")"/apt-install.sh "${packages[@]}" || true
		[ $made = 0 ] || rm -f /usr/sbin/policy-rc.d
		for tool in "${missing[@]}"; do
			command -v "$tool" >/dev/null || die "$tool is still missing"
		done
		return
	fi
	say "note: ${missing[*]} missing: install slurmctld slurmd slurm-client munge for the tests with real Slurm."
	return 1
}

# The identity of a process: its id and its start, so that no other one of that id is meant.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# init prints the first process of the cluster in DIR, if it lives.
init() {
	local pid start
	read -r pid start <"$1/init" || return 1
	[ "$(started "$pid")" = "$start" ] && echo "$pid"
}

run() {
	[ "$(id -u)" = 0 ] || die "needs root"
	mkdir -p "$1"
	local dir
	dir=$(cd "$1" && pwd)
	! init "$dir" >/dev/null 2>&1 || die "$dir is in use"
	rm -f "$dir/ready"
	exec unshare --net --uts --mount --pid --fork --kill-child=KILL -- "$self" inside "$dir"
}

up() {
	mkdir -p "$1"
	rm -f "$1/ready"
	setsid "$self" run "$1" </dev/null >"$1/out" 2>&1 &
	local i
	for i in $(seq 300); do
		[ ! -e "$1/ready" ] || return 0
		sleep 0.1
	done
	cat "$1/out" >&2
	down "$1"
	die "the cluster did not come up"
}

down() {
	local pid
	pid=$(init "$1") || return 0
	kill -KILL "$pid"
	while init "$1" >/dev/null; do sleep 0.05; done
	rm -f "$1/init" "$1/ready"
}

within() {
	local dir=$1 node=$2 pid
	shift 2
	pid=$(init "$dir") || die "no cluster runs in $dir"
	# A node's mounts are found by its process's id inside.
	local to=()
	[ "$node" = ctl ] || to=(nsenter "--mount=/proc/$(cat "$dir/nodes/$node/process")/ns/mnt" --)
	export SLURM_CONF=$dir/etc/slurm.conf
	exec nsenter --target "$pid" --net --uts --pid --mount -- "${to[@]}" "$@"
}

configuration() {
	cat <<-E
		ClusterName=test
		SlurmctldHost=ctl(127.0.0.1)
		SlurmUser=slurm
		SlurmdUser=root
		AuthType=auth/munge
		CredType=cred/munge
		# A requeued job may start when its old credential has expired (2 minutes by default).
		AuthInfo=socket=$dir/munge/socket,cred_expire=10
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/nodes/%n/spool
		SlurmctldPidFile=$dir/run/slurmctld.pid
		SlurmdPidFile=$dir/nodes/%n/slurmd.pid
		SlurmctldLogFile=$dir/log/slurmctld
		SlurmdLogFile=$dir/log/%n
		SlurmctldDebug=info
		SlurmdDebug=info
		# No cgroups, no accounting, no binding of tasks, since they are not tested.
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		AccountingStorageType=accounting_storage/none
		JobCompType=jobcomp/none
		MpiDefault=none
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		SchedulerType=sched/backfill
		SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
		SlurmdParameters=config_overrides
		ReturnToService=2
		SlurmdTimeout=30
		MessageTimeout=10
		KillWait=3
	E
	local port=6820 node
	for node in "${names[@]}"; do
		echo "NodeName=$node NodeHostname=ctl NodeAddr=127.0.0.1 Port=$((port++)) CPUs=8 RealMemory=500 Features=forebay State=UNKNOWN"
	done
	echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES State=UP"
	[ -z "${EXTRA:-}" ] || cat "$EXTRA"
}

# inside is the cluster's first process.
inside() {
	dir=$1
	# The old /proc still has this process's id outside.
	local outer
	read -r outer _ </proc/self/stat
	echo "$outer $(started "$outer")" >"$dir/init"
	mount --make-rprivate /
	mount -t proc proc /proc
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/forebay
	hostname ctl
	ip link set lo up
	# With loopback alone, getaddrinfo(3) finds no address that Slurm would take (AI_ADDRCONFIG).
	ip link add eth0 type veth peer name eth1
	ip address add 10.78.0.1/24 dev eth0
	ip link set eth0 up
	ip link set eth1 up

	chmod 755 "$dir"
	mkdir -p "$dir"/{etc,munge,run,log,state,work,nodes}
	chmod 711 "$dir/munge"
	chmod 1777 "$dir/work"
	chown slurm "$dir/state" "$dir/run" "$dir/log"
	names=()
	declare -A folder=()
	local pair
	for pair in ${NODES:-n1 n2 n3}; do
		names+=("${pair%%=*}")
		folder[${pair%%=*}]=$dir/nodes/${pair%%=*}/forebay
		[ "$pair" = "${pair#*=}" ] || folder[${pair%%=*}]=${pair#*=}
	done
	local name uid=20000
	cp /etc/passwd /etc/group "$dir/etc/"
	for name in ${USERS:-alice bob}; do
		uid=$((uid + 1))
		echo "$name:x:$uid:$uid::$dir/work:/bin/bash" >>"$dir/etc/passwd"
		echo "$name:x:$uid:" >>"$dir/etc/group"
	done
	echo "127.0.0.1 localhost ctl ${names[*]}" >"$dir/etc/hosts"
	local file
	for file in passwd group hosts; do mount --bind "$dir/etc/$file" "/etc/$file"; done
	configuration >"$dir/etc/slurm.conf"
	# cgroup/v1 does nothing until something requests it. The plug-in found by itself needs systemd.
	echo CgroupPlugin=cgroup/v1 >"$dir/etc/cgroup.conf"
	[ -z "${FILES:-}" ] || cp -r "$FILES/." "$dir/etc/"
	export SLURM_CONF=$dir/etc/slurm.conf

	(umask 077; head -c 128 /dev/urandom >"$dir/munge/key")
	munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
		--log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
	slurmctld -f "$SLURM_CONF"
	local node
	for node in "${names[@]}"; do
		mkdir -p "$dir/nodes/$node/spool" "${folder[$node]}"
		unshare --mount -- "$self" node "$dir" "$node" "${folder[$node]}" &
	done
	local i
	for i in $(seq 250); do
		[ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" != ${#names[@]} ] || break
		[ "$i" != 250 ] || { sinfo -N -l; tail -n 20 "$dir"/log/*; die "the nodes did not come up"; } >&2
		sleep 0.1
	done
	touch "$dir/ready"
	# Orphaned processes are this process's children, and it waits for them all.
	trap 'exit 0' TERM
	while :; do
		sleep 3600 &
		wait $! || true
	done
}

# node is a node's place: its mounts, which stay as long as this process does.
node() {
	local dir=$1 name=$2
	mount --bind "$3" /run/forebay
	echo $BASHPID >"$dir/nodes/$name/process"
	slurmd -N "$name" -f "$SLURM_CONF"
	exec sleep infinity
}

case ${1:-} in
tools) tools ;;
run | up | down | inside | node) "$@" ;;
in) shift; within "$@" ;;
*) sed -n '2,/^set/p' "$self" | sed '$d; s/^# \{0,1\}//' >&2; exit 2 ;;
esac
