package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/mount"
	"forebay/internal/mounts"
)

// examineMounts checks the requirements of mounts of buffers, and the present mounts.
func examineMounts() []finding {
	_, noDevice := os.Stat("/dev/fuse")
	_, noProgram := mount.Program()
	_, noHelper := exec.LookPath("fusermount3")
	all := []finding{mountFinding(noDevice == nil, noProgram == nil, os.Geteuid() == 0, noHelper == nil)}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil && all[0].State == isOK {
		all = append(all, passthroughFinding(string(release), os.Geteuid() == 0))
	}
	if table, err := os.ReadFile("/etc/fstab"); err == nil {
		_, noHelper := os.Stat("/sbin/mount.forebay")
		all = append(all, fstabFinding(string(table), noHelper == nil)...)
	}
	there, err := mounts.List()
	if err != nil {
		return append(all, finding{"mount", isSkipped, app.OneLineOf(err), ""})
	}
	for _, m := range there {
		if mounts.Dead(m.Dir, doctorTime) {
			all = append(all, finding{"mount", isWarning, fmt.Sprintf("the process that mounted %s on %s has ended", m.Source, m.Dir), "bbctl umount " + m.Dir + ", and mount it again"})
		} else {
			all = append(all, finding{"mount", isOK, m.Source + " is mounted on " + m.Dir, ""})
		}
	}
	return all
}

// passthroughFinding says which way mounts can read large files.
func passthroughFinding(release string, root bool) finding {
	var major, minor int
	fmt.Sscanf(release, "%d.%d", &major, &minor) //nolint:errcheck // 0.0 is too old
	if what := "bbmount alone can read files: passthrough needs "; major < 6 || major == 6 && minor < 9 {
		return finding{"mount", isOK, what + "Linux 6.9", ""}
	} else if !root {
		return finding{"mount", isOK, what + "a mount by root", ""}
	}
	return finding{"mount", isOK, "the kernel can read large files from memory (bbmount --passthrough read)", ""}
}

// fstabFinding returns the faults of the lines of fstab(5) that mount buffers.
func fstabFinding(table string, helper bool) (all []finding) {
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 4 || strings.HasPrefix(fields[0], "#") || fields[2] != mounts.Subtype {
			continue
		}
		if !helper {
			return []finding{{"mount", isWarning, "/etc/fstab mounts a buffer on " + fields[1] + ", and there is no /sbin/mount.forebay", "ln -s $(command -v bbmount) /sbin/mount.forebay"}}
		}
		if !slices.Contains(strings.Split(fields[3], ","), "_netdev") {
			all = append(all, finding{"mount", isWarning, "/etc/fstab mounts a buffer on " + fields[1] + " before the daemon may be reached", "add the options _netdev,nofail,x-systemd.requires=forebay-bbd.service"})
		}
	}
	return all
}

// mountFinding is a note on a missing requirement of mounts, which are optional.
func mountFinding(device, program, root, helper bool) finding {
	switch {
	case !device:
		return finding{"mount", isWarning, "buffers cannot be mounted: there is no /dev/fuse", "modprobe fuse; in a container, pass --device /dev/fuse"}
	case !program:
		return finding{"mount", isWarning, "buffers cannot be mounted: bbmount is missing", "install it beside bbctl, or in $PATH"}
	case !root && !helper:
		return finding{"mount", isWarning, "this user cannot mount buffers: fusermount3 is missing", "install fuse3, or mount as root"}
	}
	return finding{"mount", isOK, "buffers can be mounted", ""}
}
