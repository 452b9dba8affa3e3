# frozen_string_literal: true

# ruby grpc_server.rb PORT: answers each call with its own bytes.
require "grpc"

class Echo
  include GRPC::GenericService

  # The bytes of a message, unchanged.
  class Bytes < String
    def self.pack(bytes) = bytes.to_s
    def self.unpack(bytes) = new(bytes)
  end

  self.marshal_class_method = :pack
  self.unmarshal_class_method = :unpack
  self.service_name = "echo.Echo"
  rpc :Call, Bytes, Bytes

  def call(request, _) = request
end

server = GRPC::RpcServer.new(pool_size: 30)
server.add_http2_port("127.0.0.1:#{ARGV.first}", :this_port_is_insecure)
server.handle(Echo)
server.run_till_terminated_or_interrupted(["TERM"])
