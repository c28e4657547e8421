package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

const (
	bucket   = "objects"
	patience = time.Minute
)

func s3Client(address string, key accessKey) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:     aws.String("http://" + address),
		Region:           "us-east-1",
		UsePathStyle:     true,
		Credentials:      credentials.NewStaticCredentialsProvider(key.Access, key.Secret, ""),
		RetryMaxAttempts: 1,
	})
}

// Starts a process that ends with the test.
func start(t *testing.T, command *exec.Cmd) {
	t.Helper()
	no(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
}

// Tries until it works.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

// The environment with the origin's keys.
func originKeys() []string {
	return append(os.Environ(), "AWS_ACCESS_KEY_ID=originkey", "AWS_SECRET_ACCESS_KEY=originsecret")
}

// An access key, as the command line prints it.
type accessKey struct {
	Access string `json:"access_key"`
	Secret string `json:"secret_key"`
}

// The access key of the tenant `shop` of a server or an agent.
func s3Key(t *testing.T, folder string) accessKey {
	t.Helper()
	var key accessKey
	no(t, json.Unmarshal(tidemark(t, "tenant", "--data", folder, "s3-key", "shop"), &key))
	return key
}

// MiniStack as an S3 server with an empty bucket; its address.
func newOrigin(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	no(t, err)
	origin := listener.Addr().String()
	no(t, listener.Close())
	ministack := exec.Command(os.Getenv("TEST_PYTHON"), "-m", "ministack")
	ministack.Env = append(originKeys(), "BIND_HOST=127.0.0.1", "GATEWAY_PORT="+strings.Split(origin, ":")[1])
	start(t, ministack)
	direct := s3Client(origin, accessKey{"originkey", "originsecret"})
	eventually(t, func() error {
		_, err := direct.CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(bucket)})
		return err
	})
	return origin
}

// A client of an S3 address with MiniStack as the S3 server behind it.
func newS3(t *testing.T) *s3.Client {
	t.Helper()
	origin, folder := newOrigin(t), t.TempDir()
	server := exec.Command(os.Getenv("TEST_TIDEMARK"), "serve", "--memcached", "off", "--redis", "127.0.0.1:0",
		"--admin", "off", "--memory", "128MiB", "--data", folder, "--s3", "127.0.0.1:0",
		"--origin", fmt.Sprintf("s3://%s?endpoint=http://%s", bucket, origin))
	server.Env = originKeys()
	out, err := server.StdoutPipe()
	no(t, err)
	start(t, server)
	ready, err := bufio.NewReader(out).ReadString('\n')
	no(t, err)
	_, after, found := strings.Cut(ready, " s3=")
	if !found {
		t.Fatal(ready)
	}
	tidemark(t, "tenant", "--data", folder, "create", "shop")
	client := s3Client(strings.Fields(after)[0], s3Key(t, folder))
	// The server reads the list of keys once a second.
	eventually(t, func() error {
		_, err := client.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
		return err
	})
	return client
}

func random(t *testing.T, size int) []byte {
	t.Helper()
	made := make([]byte, size)
	_, err := rand.Read(made)
	no(t, err)
	return made
}

func read(t *testing.T, client *s3.Client, key, byteRange string) []byte {
	t.Helper()
	input := &s3.GetObjectInput{Bucket: aws.String(bucket), Key: aws.String(key)}
	if byteRange != "" {
		input.Range = aws.String(byteRange)
	}
	got, err := client.GetObject(limited(t), input)
	no(t, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	no(t, err)
	return body
}

func TestS3Objects(t *testing.T) {
	client := newS3(t)
	body := random(t, 3*mib+5)
	key := "a folder/ä.bin"
	put := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(key), Body: bytes.NewReader(body)}
	_, err := client.PutObject(limited(t), put)
	no(t, err)
	for range 2 {
		if !bytes.Equal(read(t, client, key, ""), body) {
			t.Fatal("other bytes came back")
		}
	}
	if !bytes.Equal(read(t, client, key, "bytes=-7"), body[len(body)-7:]) {
		t.Fatal("the range is wrong")
	}
	head, err := client.HeadObject(limited(t), &s3.HeadObjectInput{Bucket: put.Bucket, Key: put.Key})
	no(t, err)
	if *head.ContentLength != int64(len(body)) {
		t.Fatal(*head.ContentLength)
	}
	_, err = client.GetObject(limited(t), &s3.GetObjectInput{Bucket: put.Bucket, Key: put.Key, IfMatch: aws.String(`"other"`)})
	var refused smithy.APIError
	if !errors.As(err, &refused) || refused.ErrorCode() != "PreconditionFailed" {
		t.Fatal(err)
	}
	_, err = client.DeleteObject(limited(t), &s3.DeleteObjectInput{Bucket: put.Bucket, Key: put.Key})
	no(t, err)
	_, err = client.GetObject(limited(t), &s3.GetObjectInput{Bucket: put.Bucket, Key: put.Key})
	var missing *types.NoSuchKey
	if !errors.As(err, &missing) {
		t.Fatal(err)
	}
}

func TestS3Parts(t *testing.T) {
	client := newS3(t)
	bucket, key := aws.String(bucket), aws.String("parts")
	made, err := client.CreateMultipartUpload(limited(t), &s3.CreateMultipartUploadInput{Bucket: bucket, Key: key})
	no(t, err)
	var all []byte
	var parts []types.CompletedPart
	for index, size := range []int{5 * mib, 1234} {
		body, number := random(t, size), aws.Int32(int32(index+1))
		part, err := client.UploadPart(limited(t), &s3.UploadPartInput{
			Bucket: bucket, Key: key, UploadId: made.UploadId, PartNumber: number, Body: bytes.NewReader(body)})
		no(t, err)
		all = append(all, body...)
		parts = append(parts, types.CompletedPart{ETag: part.ETag, PartNumber: number})
	}
	_, err = client.CompleteMultipartUpload(limited(t), &s3.CompleteMultipartUploadInput{
		Bucket: bucket, Key: key, UploadId: made.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	no(t, err)
	if !bytes.Equal(read(t, client, "parts", ""), all) {
		t.Fatal("other bytes came back")
	}
}
