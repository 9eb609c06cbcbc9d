package fstab

import (
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want string // of bbmount; else the error has it
		fake bool
	}{
		{args: "forebay /bb -o rw,buffer=scratch", want: "-- bb://scratch /bb"},
		{args: "bb://scratch /bb", want: "-- bb://scratch /bb"},
		{
			args: "forebay /bb -n -o defaults,_netdev,nofail,x-systemd.requires=forebay-bbd.service,buffer=b,socket=unix:///s,retry=5s,log=/l -t forebay",
			want: "--socket=unix:///s --retry=5s --log=/l -- bb://b /bb",
		},
		{args: "forebay /bb -o allow_other,buffer=b", want: "--allow-other -- bb://b /bb"},
		{args: "forebay /bb -o coherent,buffer=b", want: "--coherent -- bb://b /bb"},
		{args: "forebay /bb -o direct_writes,buffer=b", want: "--direct-writes -- bb://b /bb"},
		{args: "forebay /bb -fv -o buffer=b", want: "-- bb://b /bb", fake: true},
		{args: "forebay /bb -s -o buffer=b,unheard,of=it", want: "-- bb://b /bb"},
		{args: "forebay /bb -o buffer=b,unheard", want: "unheard is not known"},
		{args: "forebay /bb -o buffer=b,socket", want: "socket is not known"},
		{args: "forebay /bb -o buffer=b,allow_other=1", want: "allow_other=1 is not known"},
		{args: "forebay /bb -o buffer=b,ro", want: "for reading and writing"},
		{args: "forebay /bb", want: "names no buffer"},
		{args: "forebay /bb -o buffer=", want: "buffer= is not known"},
		{args: "forebay", want: "a source and a directory"},
		{args: "forebay /bb more", want: "a source and a directory"},
		{args: "forebay /bb -o", want: "-o lacks its value"},
		{args: "forebay /bb -x", want: "-x is not known"},
	} {
		got, err := Parse(strings.Fields(c.args))
		if err != nil {
			if !strings.Contains(err.Error(), c.want) || bb.KindOf(err) != bb.Invalid {
				t.Errorf("%s: %v, want %s", c.args, err, c.want)
			}
			continue
		}
		if !slices.Equal(got.Args, strings.Fields(c.want)) || got.Fake != c.fake {
			t.Errorf("%s: %q, fake %v, want %s", c.args, got.Args, got.Fake, c.want)
		}
	}
}
