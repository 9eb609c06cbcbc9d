package main

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// pythonPackages are the .proto files that have Python modules, and the names of those without
// their extensions. A module hands the file's descriptor to the protobuf runtime, which makes the
// classes of it. The stub beside it is for type checkers.
var pythonPackages = map[string]string{
	"internal/wire/forebay.proto": "sdk/python/src/forebay/_wire",
}

// python returns the generated Python files by path.
func python(req *pluginpb.CodeGeneratorRequest) (map[string]string, error) {
	files := map[string]string{}
	for _, f := range req.ProtoFile {
		name, ok := pythonPackages[f.GetName()]
		if !ok {
			continue
		}
		module, err := pythonModule(f)
		if err != nil {
			return nil, err
		}
		stub, err := pythonStub(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.GetName(), err)
		}
		files[name+".py"], files[name+".pyi"] = module, stub
	}
	return files, nil
}

func pythonHeader(f *descriptorpb.FileDescriptorProto) string {
	return fmt.Sprintf("# Generated from %s by make generate. Not to be edited.\n", f.GetName())
}

func pythonModule(f *descriptorpb.FileDescriptorProto) (string, error) {
	bare := proto.Clone(f).(*descriptorpb.FileDescriptorProto)
	bare.SourceCodeInfo = nil
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(bare)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(pythonHeader(f))
	b.WriteString("import base64\n\nfrom google.protobuf import descriptor_pool, message_factory\n\n")
	b.WriteString("_pool = descriptor_pool.DescriptorPool()\n_pool.AddSerializedFile(\n    base64.b64decode(\n")
	for part := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 76) {
		fmt.Fprintf(&b, "        %q\n", part)
	}
	b.WriteString("    )\n)\n")
	fmt.Fprintf(&b, "_classes = message_factory.GetMessageClassesForFiles([%q], _pool)\n\n", f.GetName())
	for _, e := range f.EnumType {
		for _, v := range e.Value {
			fmt.Fprintf(&b, "%s = %d\n", v.GetName(), v.GetNumber())
		}
	}
	b.WriteByte('\n')
	for _, m := range f.MessageType {
		fmt.Fprintf(&b, "%s = _classes[%q]\n", m.GetName(), f.GetPackage()+"."+m.GetName())
	}
	return b.String(), nil
}

func pythonStub(f *descriptorpb.FileDescriptorProto) (string, error) {
	var b strings.Builder
	b.WriteString(pythonHeader(f))
	b.WriteString("from collections.abc import Iterable\nfrom typing import Final\n\n" +
		"from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer\n" +
		"from google.protobuf.message import Message\n\n")
	for _, e := range f.EnumType {
		for _, v := range e.Value {
			fmt.Fprintf(&b, "%s: Final = %d\n", v.GetName(), v.GetNumber())
		}
	}
	for _, m := range f.MessageType {
		if err := stubMessage(&b, m); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// stubMessage writes one message's class: its fields, and a constructor with keywords.
func stubMessage(b *strings.Builder, m *descriptorpb.DescriptorProto) error {
	fmt.Fprintf(b, "\nclass %s(Message):\n", m.GetName())
	var init strings.Builder
	for _, f := range m.Field {
		if f.GetName() == "from" { // a keyword of Python, which getattr and ** reach
			init.WriteString(", **fields: str")
			continue
		}
		typ, err := pythonType(f)
		if err != nil {
			return err
		}
		message := f.GetType() == descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
		switch {
		case f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED:
			container := "RepeatedScalarFieldContainer"
			if message {
				container = "RepeatedCompositeFieldContainer"
			}
			fmt.Fprintf(b, "    @property\n    def %s(self) -> %s[%s]: ...\n", f.GetName(), container, typ)
			fmt.Fprintf(&init, ", %s: Iterable[%s] | None = ...", f.GetName(), typ)
			continue
		case message:
			fmt.Fprintf(b, "    @property\n    def %s(self) -> %s: ...\n", f.GetName(), typ)
		default:
			fmt.Fprintf(b, "    %s: %s\n", f.GetName(), typ)
		}
		fmt.Fprintf(&init, ", %s: %s | None = ...", f.GetName(), typ)
	}
	if arguments := init.String(); arguments != "" {
		if before, rest, ok := strings.Cut(arguments, ", **fields: str"); ok {
			arguments = before + rest + ", **fields: str"
		}
		fmt.Fprintf(b, "    def __init__(self, *%s) -> None: ...\n", arguments)
	} else {
		b.WriteString("    def __init__(self) -> None: ...\n")
	}
	return nil
}

func pythonType(f *descriptorpb.FieldDescriptorProto) (string, error) {
	switch f.GetType() {
	case descriptorpb.FieldDescriptorProto_TYPE_UINT32, descriptorpb.FieldDescriptorProto_TYPE_UINT64,
		descriptorpb.FieldDescriptorProto_TYPE_INT32, descriptorpb.FieldDescriptorProto_TYPE_INT64:
		return "int", nil
	case descriptorpb.FieldDescriptorProto_TYPE_BOOL:
		return "bool", nil
	case descriptorpb.FieldDescriptorProto_TYPE_STRING:
		return "str", nil
	case descriptorpb.FieldDescriptorProto_TYPE_BYTES:
		return "bytes", nil
	case descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
		name := f.GetTypeName()
		return name[strings.LastIndexByte(name, '.')+1:], nil
	}
	return "", fmt.Errorf("field %s has type %v, which has no Python type here", f.GetName(), f.GetType())
}
