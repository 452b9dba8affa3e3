# frozen_string_literal: true

require "socket"
require "tmpdir"

module Reactor
  # The path of the socket of an observed process: NAME.sock in a folder that only its user can enter.
  #
  # @api private
  module SocketPlace
    # A folder or a socket that another user owns or can enter.
    class Untrusted < StandardError
    end

    class << self
      # @return [Array<String>] the folders that are tried, the first one that can be had is taken
      def folders
        runtime = ENV.fetch("XDG_RUNTIME_DIR", "")
        [(File.join(runtime, "reactor") if runtime.start_with?("/") && own?(runtime)), File.join(Dir.tmpdir, "reactor-#{Process.euid}")].compact
      end

      # Makes the folder if it is not there.
      #
      # @param pid [Integer]
      # @return [String] the path of the socket that the process may open
      # @raise [Untrusted] the folder belongs to another user
      def create(pid)
        folder = folders.first
        begin
          Dir.mkdir(folder, 0o700)
        rescue Errno::EEXIST
          nil
        end
        trust_folder(folder)
        File.join(folder, "#{pid}.sock")
      end

      # @param pid [Integer]
      # @return [String, nil] the path of the process's socket; nil if there is none
      # @raise [Untrusted] it, or its folder, belongs to another user
      def find(pid)
        paths = folders.map { |folder| File.join(folder, "#{pid}.sock") }
        path = paths.find { |candidate| File.symlink?(candidate) || File.exist?(candidate) } or return
        trust_folder(File.dirname(path))
        status = File.lstat(path)
        raise Untrusted, "#{path} is no socket" unless status.socket?
        raise Untrusted, "#{path} belongs to user #{status.uid}" unless status.uid == Process.euid

        path
      rescue Errno::ENOENT
        nil
      end

      private

      def own?(folder)
        status = File.lstat(folder)
        status.directory? && status.uid == Process.euid
      rescue SystemCallError
        false
      end

      def trust_folder(folder)
        status = File.lstat(folder)
        raise Untrusted, "#{folder} is no folder" unless status.directory?
        raise Untrusted, "#{folder} belongs to user #{status.uid}" unless status.uid == Process.euid
        raise Untrusted, "#{folder} can be entered by other users" if status.mode.anybits?(0o077)
      end
    end
  end
end
