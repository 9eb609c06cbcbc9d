package connect

import (
	"context"
	"net/http"
)

type matchKey struct{}

// Matching has the requests of a context carry If-Match, which minio-go does not set for a DELETE.
func Matching(ctx context.Context, etag string) context.Context {
	return context.WithValue(ctx, matchKey{}, etag)
}

// matchTransport sets the conditions of Matching.
type matchTransport struct{ http.RoundTripper }

func (t matchTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if etag, ok := r.Context().Value(matchKey{}).(string); ok && r.Method == http.MethodDelete {
		r = r.Clone(r.Context())
		r.Header.Set("If-Match", `"`+etag+`"`)
	}
	return t.RoundTripper.RoundTrip(r)
}
