// Command ociimage writes an image of static binaries as an archive of an OCI image layout
// (github.com/opencontainers/image-spec), which podman, skopeo and containerd read. The image has
// one layer with the binaries in /usr/bin, certificates, the configuration and the folders of the
// daemon, which is the first binary. The same arguments give the same bytes.
//
//	ociimage -o OUT.tar -version V -arch ARCH -created SECONDS -certificates FILE -config FILE BINARY...
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

type image struct {
	version, arch, certificates, config string
	created                             time.Time
	binaries                            []string
}

func main() {
	var im image
	out := flag.String("o", "", "file to write")
	flag.StringVar(&im.version, "version", "", "version of the image")
	flag.StringVar(&im.arch, "arch", "", "architecture, as in GOARCH")
	flag.StringVar(&im.certificates, "certificates", "", "file with the certificate authorities")
	flag.StringVar(&im.config, "config", "", "file with the daemon's configuration")
	created := flag.Int64("created", 0, "time of all files, in seconds since 1970")
	flag.Parse()
	im.created, im.binaries = time.Unix(*created, 0).UTC(), flag.Args()
	if *out == "" || len(im.binaries) == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := im.write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

// entry is a file, or a folder if its name ends in a slash.
type entry struct {
	name string
	mode int64
	data []byte
}

// files returns the files of the layer.
func (im *image) files() ([]entry, error) {
	all := []entry{
		{"etc/", 0o755, nil},
		{"etc/forebay/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"run/", 0o755, nil},
		{"run/forebay/", 0o755, nil},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"var/", 0o755, nil},
		{"var/lib/", 0o755, nil},
		{"var/lib/forebay/", 0o755, nil},
	}
	add := func(source, name string, mode int64) error {
		data, err := os.ReadFile(source)
		all = append(all, entry{name, mode, data})
		return err
	}
	err := errors.Join(add(im.certificates, "etc/ssl/certs/ca-certificates.crt", 0o644), add(im.config, "etc/forebay/bbd.yaml", 0o644))
	for _, binary := range im.binaries {
		err = errors.Join(err, add(binary, "usr/bin/"+filepath.Base(binary), 0o755))
	}
	return all, err
}

// archive writes entries as a tar.
func (im *image) archive(w io.Writer, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data)), ModTime: im.created, Typeflag: tar.TypeReg}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(e.data); err != nil {
			return err
		}
	}
	return t.Close()
}

// object is any JSON object.
type object = map[string]any

// descriptor describes a blob in references to it.
func descriptor(kind string, blob []byte) object {
	return object{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(blob), "size": len(blob)}
}

func digest(blob []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(blob)) }

// write writes the archive: the layer, the configuration that names its content, the manifest
// that names both, and the index that names the manifest.
func (im *image) write(out string) error {
	files, err := im.files()
	if err != nil {
		return err
	}
	var layer, packed, whole bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := im.archive(io.MultiWriter(&layer, zip), files); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	labels := object{"org.opencontainers.image.title": "forebay", "org.opencontainers.image.version": im.version}
	config := encode(object{
		"created": im.created.Format(time.RFC3339), "architecture": im.arch, "os": "linux",
		"config": object{
			"Entrypoint": []string{"/usr/bin/" + filepath.Base(im.binaries[0])}, "Cmd": []string{"--config", "/etc/forebay/bbd.yaml"},
			"Env": []string{"PATH=/usr/bin"}, "WorkingDir": "/", "StopSignal": "SIGTERM",
			"Volumes": object{"/var/lib/forebay": object{}}, "Labels": labels,
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}},
	})
	manifest := encode(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "annotations": labels,
		"config": descriptor("config.v1+json", config), "layers": []object{descriptor("layer.v1.tar+gzip", packed.Bytes())},
	})
	named := descriptor("manifest.v1+json", manifest)
	named["annotations"] = object{"org.opencontainers.image.ref.name": "forebay"}
	entries := []entry{
		{"blobs/", 0o755, nil},
		{"blobs/sha256/", 0o755, nil},
		{"index.json", 0o644, encode(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{named}})},
		{"oci-layout", 0o644, encode(object{"imageLayoutVersion": "1.0.0"})},
	}
	for _, blob := range [][]byte{config, manifest, packed.Bytes()} {
		entries = append(entries, entry{"blobs/sha256/" + digest(blob)[len("sha256:"):], 0o644, blob})
	}
	if err := im.archive(&whole, entries); err != nil {
		return err
	}
	return os.WriteFile(out, whole.Bytes(), 0o644)
}

// encode encodes an object, whose keys it sorts. Objects here have nothing that cannot be encoded.
func encode(o object) []byte {
	text, _ := json.Marshal(o)
	return text
}
