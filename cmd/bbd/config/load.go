package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"

	"forebay/internal/bb"
)

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// DefaultFile is read if no other file is named and it is there.
const DefaultFile = "/etc/forebay/bbd.yaml"

// Source is the sources of a configuration. Each later part has priority.
type Source struct {
	Base  Config         // the default of each setting; Default() or Dev(dir)
	File  string         // YAML; "": DefaultFile if it is there; os.DevNull: none
	Flags *pflag.FlagSet // as AddFlags made them; nil: none
}

// AddFlags adds a flag for every field: listen.tcp is --listen-tcp.
func AddFlags(flags *pflag.FlagSet) {
	base := Default()
	for _, f := range fields {
		flags.String(f.flag(), "", f.usage)
		if _, ok := f.value(&base).(*bool); ok {
			flags.Lookup(f.flag()).NoOptDefVal = "true"
		}
	}
}

// Load reads the configuration from the file, then FOREBAY_* of the environment,
// then flags, and validates it. The error is a *bb.Error of kind invalid that
// wraps Problems holding every problem at once, or has the reason why the file is unreadable.
func Load(src Source) (Config, error) {
	v, problems, err := read(&src)
	if err != nil {
		return Config{}, err
	}
	c := src.Base
	c.Lustre.Stripes = slices.Clone(c.Lustre.Stripes)
	c.Stores = slices.Clone(c.Stores)
	for _, f := range fields {
		if !v.IsSet(f.key) {
			continue
		}
		value := v.Get(f.key)
		if err := parse(f.value(&c), value); err != nil {
			problems.add(f.key, fmt.Sprint(value), err.Error(), f.usage)
		}
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	problems = append(problems, c.Validate()...)
	problems = append(problems, c.checkFiles()...)
	if len(problems) > 0 {
		return Config{}, &bb.Error{Kind: bb.Invalid, Op: "configuration", Path: src.File, Err: problems}
	}
	return c, nil
}

// read stacks the sources and collects the file's unknown keys.
func read(src *Source) (*viper.Viper, Problems, error) {
	v := viper.New()
	for _, f := range fields {
		if err := v.BindEnv(f.key, f.env()); err != nil {
			return nil, nil, err
		}
		if src.Flags == nil {
			continue
		}
		if flag := src.Flags.Lookup(f.flag()); flag != nil && flag.Changed {
			v.Set(f.key, flag.Value.String())
		}
	}
	tree, err := readFile(src)
	if err != nil {
		return nil, nil, err
	}
	problems := unknown(tree, "")
	return v, problems, v.MergeConfigMap(tree)
}

// readFile returns the file as a tree of keys and sets src.File to its name. No
// file is an empty tree, unless one was named.
func readFile(src *Source) (map[string]any, error) {
	if src.File == os.DevNull {
		return nil, nil
	}
	named := src.File != ""
	if !named {
		src.File = DefaultFile
	}
	info, err := os.Stat(src.File)
	switch {
	case !named && errors.Is(err, fs.ErrNotExist):
		src.File = ""
		return nil, nil
	case err != nil:
		return nil, bb.Wrap("configuration", src.File, err)
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, bb.E(bb.Invalid, "configuration", src.File, "it is not a file of at most 1 MiB")
	}
	text, err := os.ReadFile(src.File)
	if err != nil {
		return nil, bb.Wrap("configuration", src.File, err)
	}
	tree, err := parseFile(text)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Invalid, Op: "configuration", Path: src.File, Err: err}
	}
	return tree, nil
}

// parseFile reads YAML. Keys given twice are an error, as are tabs and the like.
func parseFile(text []byte) (map[string]any, error) {
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	return tree, nil
}

// unknown reports the keys below prefix that no field has, and sections that are no sections. viper
// itself would skip an empty section, and accepts keys in any case. Here the file must use the
// names of the reference page.
func unknown(tree map[string]any, prefix string) Problems {
	var problems Problems
	for key, value := range tree {
		full := prefix + key
		sub, isMap := value.(map[string]any)
		switch {
		case isField(full):
		case !isSection(full):
			problems.add(full, "", "the key is unknown", nearest(full))
		case isMap:
			problems = append(problems, unknown(sub, full+".")...)
		case value != nil:
			problems.add(full, fmt.Sprint(value), "it is a section, not a value", "put keys below it")
		}
	}
	slices.SortFunc(problems, func(a, b Problem) int { return strings.Compare(a.Key, b.Key) })
	return problems
}

func isField(key string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.key == key })
}

func isSection(key string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return strings.HasPrefix(f.key, key+".") })
}

// nearest suggests the field whose key, or last part of it, resembles an unknown one.
func nearest(key string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	for _, f := range fields {
		name := f.key[strings.LastIndexByte(f.key, '.')+1:]
		if strings.EqualFold(f.key, key) || strings.EqualFold(strip(name), strip(last)) {
			return "did you mean " + f.key + "?"
		}
	}
	keys := make([]string, 0, len(fields))
	for _, f := range fields {
		keys = append(keys, f.key)
	}
	return bb.DidYouMean(key, keys, "`bbd config defaults` lists the keys")
}

func strip(s string) string { return strings.NewReplacer("_", "", "-", "").Replace(s) }
