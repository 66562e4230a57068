module kornel.internal/clients/go

go 1.24.0

require (
	github.com/apache/yunikorn-scheduler-interface v1.8.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20250303144028-a0af3efb3deb
	google.golang.org/grpc v1.72.1
	google.golang.org/protobuf v1.36.8
)

require (
	golang.org/x/net v0.35.0 // indirect
	golang.org/x/sys v0.39.0 // indirect
	golang.org/x/text v0.32.0 // indirect
)
