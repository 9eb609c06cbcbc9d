// Package fstab translates the command line that mount(8) calls its helper mount.forebay with, for a line of
// fstab(5), into that of bbmount. It must never depend on the work of bbmount.
package fstab

import (
	"errors"
	"fmt"
	"strings"

	"forebay/internal/bb"
)

// Helper is the name by which mount(8) calls the program for file systems of type forebay.
const Helper = "mount.forebay"

// ignored are options that are for mount(8) and systemd alone, or that every mount of a buffer has.
var ignored = map[string]bool{
	"": true, "defaults": true, "rw": true, "auto": true, "noauto": true, "nofail": true, "_netdev": true, "user": true, "users": true,
	"nouser": true, "owner": true, "group": true, "nosuid": true, "nodev": true, "exec": true, "async": true, "relatime": true, "noatime": true,
}

// flags are the options that bbmount has by other names. true means with a value.
var flags = map[string]struct {
	name  string
	value bool
}{
	"socket": {"--socket", true}, "log": {"--log", true}, "retry": {"--retry", true}, "allow_other": {"--allow-other", false}, "coherent": {"--coherent", false},
	"direct_writes": {"--direct-writes", false},
}

// Line is the result of Parse.
type Line struct {
	Args []string // of bbmount
	Fake bool     // nothing is to be mounted
}

// Parse translates the arguments of mount.forebay, which are
//
//	SPEC DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTION,…]
//
// SPEC is bb://BUFFER, or any word if buffer=BUFFER is among the options. Unless -s is given,
// unknown options are errors.
func Parse(args []string) (Line, error) {
	var names, options []string
	var l Line
	sloppy := false
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case !strings.HasPrefix(arg, "-") || arg == "-":
			names = append(names, arg)
		case strings.Trim(arg[1:], "sfnv") == "":
			l.Fake, sloppy = l.Fake || strings.Contains(arg, "f"), sloppy || strings.Contains(arg, "s")
		case arg == "-o" || arg == "-t" || arg == "-N":
			if i++; i == len(args) {
				return l, invalid(arg + " lacks its value")
			}
			if arg == "-o" {
				options = append(options, strings.Split(args[i], ",")...)
			}
		default:
			return l, invalid(arg + " is not known")
		}
	}
	if len(names) != 2 {
		return l, invalid("it takes a source and a directory: " + strings.Join(names, " "))
	}
	source := names[0]
	for _, o := range options {
		name, value, hasValue := strings.Cut(o, "=")
		flag, known := flags[name]
		switch {
		case name == "buffer" && value != "":
			source = bb.Scheme + "://" + value
		case ignored[o] || strings.HasPrefix(name, "x-") || name == "comment":
		case known && hasValue == flag.value:
			l.Args = append(l.Args, strings.TrimSuffix(flag.name+"="+value, "="))
		case name == "ro":
			return l, invalid("ro: a buffer is mounted for reading and writing")
		case !sloppy:
			return l, invalid(fmt.Sprintf("the mount option %s is not known", o))
		}
	}
	if !strings.HasPrefix(source, bb.Scheme+"://") {
		return l, invalid(source + " names no buffer: add the option buffer=NAME")
	}
	l.Args = append(l.Args, "--", source, names[1])
	return l, nil
}

func invalid(why string) error {
	return &bb.Error{Kind: bb.Invalid, Op: Helper, Err: errors.New(why), Remedy: "see docs/mount.md"}
}
