package s3

import (
	"cmp"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/connect"
	"forebay/internal/bb"
)

// Verify is the condition for an upload to count as confirmed.
type Verify string

// The ways to verify an upload.
const (
	// VerifyStore relies on the CRC-64/NVME that the store reports to have computed.
	VerifyStore Verify = ""
	// VerifyRead reads every object back, for stores that keep no such checksum.
	VerifyRead Verify = "read"
)

// Options configures a store.
type Options struct {
	Owner backing.Owner

	connect.Options
	Verify Verify

	PartSize  int64 // bytes of one part of a large upload; 0: 16 MiB
	Threshold int64 // objects larger than this go in parts; 0: 32 MiB
	Parallel  int   // parts of one object at a time; 0: 4
	CopyLimit int64 // objects larger than this are copied in parts; 0: 5 GiB, S3's limit

	Logger *slog.Logger

	// Changed is called with a confirmed object that a late request has overwritten or removed, so
	// it should be put again. It may be called concurrently. Nil: no calls.
	Changed func(name string)

	// Mark is kept with markers of directories that the store makes. DirOptions.Keep then concerns
	// those without it. "": none is.
	Mark string

	requestLife time.Duration    // how long a request may be on its way; 0: the constant
	watch       [2]time.Duration // shortest and longest pause between checks after late requests; 0: 1 s, 1 min
	pageSize    int              // keys in a listing's page; 0: the store's default
}

// DefaultEndpoint is that of a store without one: AWS.
const DefaultEndpoint = "https://s3.amazonaws.com"

const (
	minPart  = 5 << 20 // S3 refuses smaller parts, but for the last
	maxParts = 10_000
)

// withQuery adds a URL's query and the defaults, and refuses impossible values. A parameter without a value
// counts as a missing one, as it does in bbd/storerules.
func (o Options) withQuery(where bb.Backing) (Options, error) {
	for key, values := range where.Query {
		var err error
		switch v := values[len(values)-1]; key {
		case "endpoint":
			o.Endpoint = cmp.Or(v, o.Endpoint)
		case "region":
			o.Region = cmp.Or(v, o.Region)
		case "path_style":
			o.PathStyle, err = strconv.ParseBool(v)
		case "ca":
			o.CAFile = cmp.Or(v, o.CAFile)
		case "verify":
			o.Verify = Verify(v)
		case "profile":
			o.Profile = cmp.Or(v, o.Profile)
		case "credentials":
			o.OwnCredentials = v
		default:
			err = fmt.Errorf("unknown parameter")
		}
		if err != nil {
			return o, bb.E(bb.Invalid, "backing", key+"="+values[len(values)-1], err.Error()).
				WithRemedy("use endpoint, region, path_style, ca, verify, profile or credentials")
		}
	}
	if o.Verify != VerifyStore && o.Verify != VerifyRead {
		return o, bb.E(bb.Invalid, "backing", "verify="+string(o.Verify), `is neither empty nor "read"`)
	}
	return o.withDefaults(), nil
}

func (o Options) withDefaults() Options {
	if o.Endpoint == "" {
		o.Endpoint = DefaultEndpoint
	}
	o.PartSize = max(minPart, orDefault(o.PartSize, 16<<20))
	o.Threshold = orDefault(o.Threshold, 32<<20)
	o.Parallel = int(orDefault(int64(o.Parallel), 4))
	o.CopyLimit = orDefault(o.CopyLimit, 5<<30)
	if o.requestLife <= 0 {
		o.requestLife = requestLife
	}
	if o.watch[0] <= 0 {
		o.watch = [2]time.Duration{time.Second, time.Minute}
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}
