// Command genproto regenerates the Go code of every .proto file in a tree, and the Python code of
// some, or checks that it is current. It needs no protoc. The files are compiled by a Go library
// and handed to the protoc-gen-go that this module pins.
//
//	genproto [-check] ROOT
//
// Files import each other by their path from ROOT. Each name.proto becomes name.pb.go beside it. With -check nothing is
// written, and the command fails naming each file that is stale, missing, or left over from a deleted .proto.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
	"mvdan.cc/gofumpt/format"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a generated file is not current")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: genproto [-check] ROOT")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "genproto:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, check bool) error {
	protos, generated, err := find(root)
	if err != nil {
		return err
	}
	want := map[string]string{}
	if len(protos) > 0 {
		if want, err = generate(ctx, root, protos); err != nil {
			return err
		}
	}
	if check {
		return compare(root, want, generated)
	}
	return write(root, want, generated)
}

// find lists the .proto and .pb.go files below root, by their paths from root,
// sorted. Hidden folders and bin hold nothing of ours.
func find(root string) (protos, generated []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "target") { // files of make build
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch name := filepath.ToSlash(rel); {
		case strings.HasSuffix(name, ".proto"):
			protos = append(protos, name)
		case strings.HasSuffix(name, ".pb.go"):
			generated = append(generated, name)
		}
		return nil
	})
	return protos, generated, err
}

// generate compiles the files and returns the generated ones by path.
func generate(ctx context.Context, root string, protos []string) (map[string]string, error) {
	req, err := request(ctx, root, protos)
	if err != nil {
		return nil, err
	}
	resp, err := runPlugin(ctx, req)
	if err != nil {
		return nil, err
	}
	files := make(map[string]string, len(resp.File))
	for _, f := range resp.File {
		// As all other code of the tree, so that a check of its form needs no exceptions.
		text, err := format.Source([]byte(f.GetContent()), format.Options{LangVersion: langVersion, ModulePath: modulePath})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.GetName(), err)
		}
		files[f.GetName()] = string(text)
	}
	py, err := python(req)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, py)
	return files, nil
}

// As gofumpt finds it in go.mod.
const (
	langVersion = "go1.26"
	modulePath  = "forebay"
)

// request compiles the files into the input of a protoc plugin: the descriptors of the files and of
// all they import, each after its own imports.
func request(ctx context.Context, root string, protos []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, protos...)
	if err != nil {
		return nil, err
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	for _, f := range files {
		add(f)
	}
	return &pluginpb.CodeGeneratorRequest{
		FileToGenerate: protos,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      all,
	}, nil
}

// runPlugin runs the pinned protoc-gen-go, which is a tool of the module in the
// current directory.
func runPlugin(ctx context.Context, req *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "tool", "protoc-gen-go")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("protoc-gen-go: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	resp := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out.Bytes(), resp); err != nil {
		return nil, fmt.Errorf("answer of protoc-gen-go: %w", err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("protoc-gen-go: %s", resp.GetError())
	}
	return resp, nil
}

// compare returns an error that names each file with other content than wanted, and each generated
// file that nothing generates any more.
func compare(root string, want map[string]string, generated []string) error {
	var problems []error
	for _, name := range sortedKeys(want) {
		have, err := os.ReadFile(filepath.Join(root, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problems = append(problems, fmt.Errorf("%s is missing", name))
		case err != nil:
			problems = append(problems, err)
		case string(have) != want[name]:
			problems = append(problems, fmt.Errorf("%s is not current", name))
		}
	}
	for _, name := range generated {
		if _, ok := want[name]; !ok {
			problems = append(problems, fmt.Errorf("%s has no .proto file", name))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nrun: make generate", errors.Join(problems...))
}

// write writes the files that changed and removes those that nothing generates.
func write(root string, want map[string]string, generated []string) error {
	for _, name := range sortedKeys(want) {
		path := filepath.Join(root, name)
		if have, err := os.ReadFile(path); err == nil && string(have) == want[name] {
			continue
		}
		if err := os.WriteFile(path, []byte(want[name]), 0o644); err != nil {
			return err
		}
		fmt.Println("wrote", name)
	}
	for _, name := range generated {
		if _, ok := want[name]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			return err
		}
		fmt.Println("removed", name)
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
