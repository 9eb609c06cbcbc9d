package config

import (
	"fmt"
	"strings"
)

// YAML returns the configuration as a commented file that Load reads back.
func YAML(c Config) string {
	var b strings.Builder
	b.WriteString("# Configuration of bbd. Every key may be left out; FOREBAY_* in the environment\n# and flags have priority over this file.\n\n")
	open := []string{} // the sections that the last key stands in
	for _, f := range fields {
		parts := strings.Split(f.key, ".")
		for depth := range len(parts) - 1 {
			if depth < len(open) && open[depth] == parts[depth] {
				continue
			}
			if depth == 0 {
				b.WriteString("\n" + comment("", sectionUsage(parts[0])))
			}
			b.WriteString(strings.Repeat("  ", depth) + parts[depth] + ":\n")
			open = append(open[:min(depth, len(open))], parts[depth])
		}
		open = open[:len(parts)-1]
		indent := strings.Repeat("  ", len(parts)-1)
		b.WriteString(comment(indent, f.usage))
		fmt.Fprintf(&b, "%s%s: %s\n", indent, parts[len(parts)-1], format(f.value(&c)))
	}
	return b.String()
}

func sectionUsage(key string) string {
	for _, s := range sections {
		if s.key == key {
			return s.usage
		}
	}
	return ""
}

// comment wraps text into comment lines of at most 90 characters.
func comment(indent, text string) string {
	var b strings.Builder
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 90 {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	return b.String() + line + "\n"
}

// Page returns docs/configuration.md.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	c := Default()
	for _, s := range sections {
		title := s.key
		if title == "" {
			title = "node"
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | default | meaning |\n|---|---|---|\n", title, s.usage)
		for _, f := range fields {
			if section, _, nested := strings.Cut(f.key, "."); nested && section == s.key || !nested && s.key == "" {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", f.key, format(f.value(&c)), strings.ReplaceAll(f.usage, "|", "\\|"))
			}
		}
	}
	return b.String()
}

const pageHead = `<!-- Made from cmd/bbd/config by "make generate"; changes here are overwritten. -->

# Configuration of bbd

` + "`bbd`" + ` reads a YAML file (` + "`--config FILE`" + `, else ` + "`" + DefaultFile + "`" + ` if it is there), then the environment, then
flags; what is read later has priority. Every key may be left out. The key ` + "`listen.tcp`" + ` is
` + "`FOREBAY_LISTEN_TCP`" + ` in the environment and ` + "`--listen-tcp`" + ` as a flag.

` + "`bbd config defaults`" + ` prints a commented file with all defaults; ` + "`bbd config check --config FILE`" + ` reports
every problem at once and changes nothing. An unknown key is a problem.

Sizes are bytes as people write them: ` + "`64GiB`" + `, ` + "`1.5TB`" + `, ` + "`4096`" + `; some may be a share, such as ` + "`25%`" + `.
Durations are ` + "`90s`" + `, ` + "`5m`" + `, ` + "`1h30m`" + `. Files that hold secrets must be readable by their owner only;
secrets themselves never stand in the configuration.
`
