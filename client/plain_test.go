//go:build !ofi || !cgo

package client

var fabricArgs []string

const fabricConn = "*tcp."
