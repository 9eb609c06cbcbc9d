package s3test

import (
	"net/http"
	"testing"
)

func TestServerAnswersAndStops(t *testing.T) {
	var s *Server
	t.Run("running", func(t *testing.T) {
		s = Start(t)
		answer, err := http.Get(s.Endpoint + "/" + s.Bucket(t, "b"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode < 400 {
			t.Fatalf("anonymous listing: %s, want it refused", answer.Status)
		}
	})
	if answer, err := http.Get(s.Endpoint); err == nil {
		answer.Body.Close()
		t.Fatal("the server answers after its test has ended")
	}
}
