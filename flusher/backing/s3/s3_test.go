package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/s3/connect"
	"forebay/internal/bb"
	"forebay/internal/s3test"
)

const large = 2*minPart + 17

func TestMain(m *testing.M) {
	os.Exit(backingtest.Main(m, func(url string) (backing.Store, error) {
		where, err := bb.ParseBacking(url)
		if err != nil {
			return nil, err
		}
		return Open(where, options())
	}))
}

// options has small parts, and takes the credentials from the environment, as the crashing process must.
func options() Options {
	return Options{Owner: backing.NewOwner(7), PartSize: minPart, Threshold: 1 << 20, CopyLimit: minPart + 1, pageSize: 3}
}

func open(t *testing.T, url string, opts Options) *Store {
	t.Helper()
	where, err := bb.ParseBacking(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(where, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func start(t *testing.T) *s3test.Server {
	server := s3test.Start(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections) // the server waits for them when it stops
	for _, v := range server.Env() {
		key, value, _ := strings.Cut(v, "=")
		t.Setenv(key, value)
	}
	return server
}

func TestSuite(t *testing.T) {
	server := start(t)
	buckets := 0
	bucket := func(t *testing.T) string {
		buckets++
		return server.Bucket(t, "bucket-"+strconv.Itoa(buckets))
	}
	backingtest.Suite(t, backingtest.Harness{
		Open: func(t *testing.T) backing.Store {
			return open(t, server.URL(bucket(t), "some/prefix"), options())
		},
		Large: large,
		Damage: func(t *testing.T, s backing.Store, name string) {
			file := server.File(s.(*Store).bucket, s.(*Store).key(name))
			f, err := os.OpenFile(file, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt([]byte("damage"), 100); err != nil {
				t.Fatal(err)
			}
			f.Close()
		},
		Crash: func(t *testing.T, name string) backing.Store {
			url := server.URL(bucket(t), "some/prefix")
			backingtest.Kill(t, url, name, large)
			return open(t, url, options())
		},
	})
}

func TestCheckSaysWhatToDo(t *testing.T) {
	server := start(t)
	bucket := server.Bucket(t, "there")
	wrong := options()
	wrong.AccessKey, wrong.SecretKey = "somebody", "else"
	secret := options()
	secret.AccessKey, secret.SecretKey = server.AccessKey, "wrong"
	gone := "s3://there?endpoint=http://127.0.0.1:1&region=x&path_style=true"
	for _, test := range []struct {
		name, url string
		opts      Options
		kind      bb.Kind
		remedy    string
	}{
		{"missing bucket", server.URL("not-there", ""), options(), bb.NotFound, "create the bucket"},
		{"unknown key", server.URL(bucket, ""), wrong, bb.Permission, "check access key"},
		{"wrong secret", server.URL(bucket, "p"), secret, bb.Permission, "check access key"},
		{"no server", gone, options(), bb.Unavailable, "check the endpoint"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := open(t, test.url, test.opts).Check(t.Context())
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.remedy) || strings.Contains(err.Error(), ".forebay") || !strings.Contains(err.Error(), "s3://") {
				t.Fatalf("%v (%v)", err, bb.KindOf(err))
			}
		})
	}
	_, err := open(t, server.URL("not-there", ""), options()).Sweep(t.Context())
	if !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

// A parameter without a value leaves the site's. A user with a rule for that one gets no other.
func TestEmptyParameters(t *testing.T) {
	where, err := bb.ParseBacking("s3://bucket?endpoint=&endpoint&region=&ca=&profile=")
	if err != nil {
		t.Fatal(err)
	}
	site := Options{Options: connect.Options{Endpoint: "https://store.example", Region: "r", CAFile: "/ca.pem", Profile: "p"}}
	if o, err := site.withQuery(where); err != nil || o.Endpoint != site.Endpoint || o.Region != site.Region || o.CAFile != site.CAFile || o.Profile != site.Profile {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, url := range []string{
		"s3://bucket?endpoint=ftp://h", "s3://bucket?endpoint=h:1", "s3://bucket?endpoint=http://h/path", "s3://bucket?path_style=maybe",
		"s3://bucket?unknown=1", "s3://bucket?verify=perhaps", "s3://bucket?endpoint=http://user:secret@h",
	} {
		where, err := bb.ParseBacking(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(where, Options{}); !errors.Is(err, bb.Invalid) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, bucket := range []string{"ab", "a..b", strings.Repeat("a", 64), "10.0.0.1"} {
		_, err := Open(bb.Backing{Scheme: "s3", Bucket: bucket}, Options{})
		var e *bb.Error
		if !errors.Is(err, bb.Invalid) || !strings.Contains(err.Error(), "s3://"+bucket) || !errors.As(err, &e) || e.Remedy == "" {
			t.Errorf("bucket %s: %v", bucket, err)
		}
	}
	where, _ := bb.ParseBacking("s3://bucket?ca=/none")
	if _, err := Open(where, Options{}); !errors.Is(err, bb.NotFound) {
		t.Error(err)
	}
}

// between changes requests and answers on their way.
type between struct {
	request func(*http.Request) *http.Response
	answer  func(*http.Response)
}

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.request != nil {
		if answer := b.request(r); answer != nil {
			return answer, nil
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && b.answer != nil {
		b.answer(answer)
	}
	return answer, err
}

const checksumHeader = "X-Amz-Checksum-Crc64nvme"

// TestStoreThatLies makes the store confirm another checksum than that of its bytes.
func TestStoreThatLies(t *testing.T) {
	server := start(t)
	opts := options()
	opts.Transport = between{answer: func(r *http.Response) {
		if r.Header.Get(checksumHeader) != "" {
			r.Header.Set(checksumHeader, encodeChecksum(1))
		}
		if r.Request.Method == http.MethodPost && strings.Contains(r.Request.URL.RawQuery, "uploadId=") {
			rewrite(r, "ChecksumCRC64NVME")
		}
	}}
	s := open(t, server.URL(server.Bucket(t, "lies"), ""), opts)
	for _, size := range []int64{10, large} {
		_, err := s.Put(t.Context(), "f", backing.NewBytes(backingtest.Data(size, 1)), backing.PutOptions{})
		if !errors.Is(err, bb.Checksum) || !backing.Passing(err) {
			t.Fatalf("size %d: %v", size, err)
		}
	}
}

// rewrite takes an element out of an XML answer.
func rewrite(r *http.Response, element string) {
	b, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if begin, end := bytes.Index(b, []byte("<"+element)), bytes.Index(b, []byte("</"+element+">")); begin >= 0 {
		b = append(b[:begin:begin], b[end+len(element)+3:]...)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	r.ContentLength = int64(len(b))
}

// TestBytesDamagedOnTheWay shows that the server itself refuses them.
func TestBytesDamagedOnTheWay(t *testing.T) {
	server := start(t)
	opts := options()
	opts.Transport = between{request: func(r *http.Request) *http.Response {
		if r.Method == http.MethodPut && r.Body != nil {
			b, _ := io.ReadAll(r.Body)
			b[len(b)-1] ^= 1
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		return nil
	}}
	s := open(t, server.URL(server.Bucket(t, "damaged"), ""), opts)
	_, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("some bytes")), backing.PutOptions{})
	if !errors.Is(err, bb.Checksum) {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "f"); !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

// TestStoreWithoutChecksums is a store without CRC-64/NVME.
func TestStoreWithoutChecksums(t *testing.T) {
	server := start(t)
	opts := options()
	opts.Transport = between{answer: func(r *http.Response) {
		r.Header.Del(checksumHeader)
		if r.Request.Method == http.MethodPost {
			rewrite(r, "ChecksumCRC64NVME")
		}
	}}
	url := server.URL(server.Bucket(t, "plain"), "")
	s := open(t, url, opts)
	if err := s.Check(t.Context()); !errors.Is(err, bb.Unsupported) || !strings.Contains(err.Error(), "verify=read") {
		t.Fatal(err)
	}
	s = open(t, url+"&verify=read", opts)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, 10, large} {
		if _, err := s.Put(t.Context(), "f", backing.NewBytes(backingtest.Data(size, 1)), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFailedUploadIsAborted leaves neither parts nor an announcement.
func TestFailedUploadIsAborted(t *testing.T) {
	server := start(t)
	var parts atomic.Int32
	opts := options()
	opts.Parallel = 1 // no other part on its way may still arrive: see TestAbortedUntilGone
	opts.Transport = between{request: func(r *http.Request) *http.Response {
		if r.Method == http.MethodPut && r.URL.Query().Has("partNumber") && parts.Add(1) == 2 {
			body, _ := xml.Marshal(struct {
				XMLName xml.Name `xml:"Error"`
				Code    string
			}{Code: "SlowDown"})
			return &http.Response{
				StatusCode: http.StatusServiceUnavailable, Request: r, Header: http.Header{},
				Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
			}
		}
		return nil
	}}
	s := open(t, server.URL(server.Bucket(t, "aborted"), "p"), opts)
	_, err := s.Put(t.Context(), "f", backing.NewBytes(backingtest.Data(large, 1)), backing.PutOptions{})
	if !errors.Is(err, bb.Unavailable) || !backing.Passing(err) {
		t.Fatal(err)
	}
	uploads, err := s.client.ListMultipartUploads(t.Context(), s.bucket, "", "", "", "", 100)
	if err != nil || len(uploads.Uploads) != 0 {
		t.Fatal(uploads.Uploads, err)
	}
	for info := range s.client.ListObjectsIter(t.Context(), s.bucket, listAll) {
		t.Errorf("left behind: %s %v", info.Key, info.Err)
	}
}

// TestAbortedUntilGone: a part that arrives after the upload was aborted does not stay.
func TestAbortedUntilGone(t *testing.T) {
	server := start(t)
	var aborts atomic.Int32
	opts := options()
	opts.Transport = between{request: func(r *http.Request) *http.Response {
		if r.Method == http.MethodDelete && r.URL.Query().Has("uploadId") && aborts.Add(1) == 1 {
			// A listing of its parts shows the upload unchanged.
			return &http.Response{StatusCode: http.StatusNoContent, Request: r, Header: http.Header{}, Body: http.NoBody}
		}
		return nil
	}}
	s := open(t, server.URL(server.Bucket(t, "late"), "p"), opts)
	id, err := s.client.NewMultipartUpload(t.Context(), s.bucket, "p/f", putOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.PutObjectPart(t.Context(), s.bucket, "p/f", id, 1, bytes.NewReader([]byte("late")), 4, minio.PutObjectPartOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.abort(t.Context(), "p/f", id); err != nil || aborts.Load() != 2 {
		t.Errorf("aborted %d times: %v", aborts.Load(), err)
	}
	uploads, err := s.client.ListMultipartUploads(t.Context(), s.bucket, "", "", "", "", 100)
	if err != nil || len(uploads.Uploads) != 0 {
		t.Error(uploads.Uploads, err)
	}
}

// TestForeignUploadIsSpared sweeps while another client uploads under our prefix.
func TestForeignUploadIsSpared(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "foreign"), ""), options())
	if _, err := s.client.NewMultipartUpload(t.Context(), s.bucket, "theirs", putOptions); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	uploads, err := s.client.ListMultipartUploads(t.Context(), s.bucket, "", "", "", "", 100)
	if err != nil || len(uploads.Uploads) != 1 {
		t.Fatal(uploads.Uploads, err)
	}
}

func TestClosedStore(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "closed"), ""), options())
	s.Close()
	if _, err := s.Stat(t.Context(), "x"); err == nil || errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

var (
	listAll    = minio.ListObjectsOptions{Recursive: true}
	putOptions = minio.PutObjectOptions{}
)
