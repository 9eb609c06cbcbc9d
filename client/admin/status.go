package admin

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Status returns the daemon's status as JSON, as GET /status does: of one buffer, or of all for "".
func Status(ctx context.Context, c *client.Client, buffer string) (json.RawMessage, error) {
	var reply wire.StatusReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer}, &reply); err != nil {
		return nil, bb.Wrap("status", buffer, err)
	}
	return json.RawMessage(reply.Json), nil
}

// NodeStatus returns a node's status as JSON, through the daemon of this client. ErrUnsupported if
// that daemon is too old for that.
func NodeStatus(ctx context.Context, c *client.Client, node NodeID, buffer string) (json.RawMessage, error) {
	var reply wire.StatusReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer, Node: string(node)}, &reply); err != nil {
		return nil, bb.Wrap("status", string(node), err)
	}
	var of struct {
		Node NodeID `json:"node"`
	}
	if err := json.Unmarshal(reply.Json, &of); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "status", Path: string(node), Err: err}
	}
	if of.Node != node {
		return nil, bb.E(bb.Unsupported, "status", string(node), fmt.Sprintf("the daemon of node %s is too old to ask another one", of.Node)).
			WithRemedy("ask a daemon of that node, or upgrade this one")
	}
	return json.RawMessage(reply.Json), nil
}

// ClusterStatus returns the status of the answering daemon, like Status, and one JSON
// object for each node of its cluster: its state, its own status, and the files of a node that
// does not answer. No nodes: the daemon is alone, or too old.
func ClusterStatus(ctx context.Context, c *client.Client, buffer string) (own json.RawMessage, nodes []json.RawMessage, err error) {
	err = of(c).Repeat(ctx, func() error {
		own, nodes = nil, nil
		return of(c).Stream(ctx, wire.Type_TYPE_STATUS, &wire.StatusRequest{Buffer: buffer, Cluster: true}, nil, func(message, _ []byte) error {
			var m wire.StatusReply
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if len(m.Node) > 0 {
				nodes = append(nodes, m.Node)
			} else {
				own = m.Json
			}
			return nil
		})
	})
	return own, nodes, bb.Wrap("status", buffer, err)
}
