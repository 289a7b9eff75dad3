package org.apache.spark.sql.delta.variant

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.security.alias.CredentialProviderFactory

/**
 * Hadoop's settings for the file system of a path, for Python, which writes there by other means (delta_variant/hadoop.py).
 *
 * Hadoop reads credential stores (`hadoop.security.credential.provider.path` and S3A's own); their entries take precedence over
 * plain settings, as in Hadoop's `Configuration.getPassword`.
 */
final class HadoopSettings(path: Path, asked: Configuration) {
  import HadoopSettings._

  private val isLocal = Option(path.toUri.getScheme).forall(_ == "file")
  private lazy val inConf = {
    for (prefix <- Prefixes; (name, value) <- asked.getPropsWithPrefix(prefix).asScala) yield prefix + name -> value
  }.toMap

  /** Whether Java names files there in UTF-8, as Python does. It names local ones in the character set of the locale. */
  def namesUnicode: Boolean = !isLocal || Option(System.getProperty("sun.jnu.encoding")).forall(_.equalsIgnoreCase("UTF-8"))

  /** The configuration in which the stores for this path are the general ones. */
  private lazy val conf = {
    val conf = new Configuration(asked)
    if (stores.nonEmpty) conf.set(Store, stores.mkString(","))
    conf
  }

  /** S3A looks into its own stores first; those of the bucket replace its general ones. */
  private lazy val stores: Seq[String] = {
    val own =
      if (Set("s3", "s3a")(path.toUri.getScheme)) inConf.get(ofBucket(path.toUri.getHost)).orElse(inConf.get(S3aStore))
      else None
    (own ++ inConf.get(Store)).map(_.trim).filter(_.nonEmpty).toSeq
  }

  /** The settings of file systems and their credentials, with variables substituted; none for local files. Throws. */
  def settings: Messages.StorageSettings =
    if (isLocal) Messages.StorageSettings(Map.empty, None)
    else {
      val isS3 = Set("s3", "s3a")(path.toUri.getScheme)
      val read = Set(Store) ++ (if (isS3) Set(S3aStore, ofBucket(path.toUri.getHost)) else Nil)
      Messages.StorageSettings(inConf -- read ++ (if (stores.isEmpty) Map.empty else secrets), None)
    }

  /** `settings` as JSON. */
  def json: String = Messages.encoded(settings)

  /** The entries of the credential stores for file systems. If several stores have a name, the first of them counts. */
  private def secrets: Map[String, String] = {
    val found = for {
      store <- CredentialProviderFactory.getProviders(conf).asScala
      name <- store.getAliases.asScala
      if name.startsWith("fs.") || name.startsWith("google.")
    } yield name -> (() => new String(store.getCredentialEntry(name).getCredential))
    found.reverse.toMap.map { case (name, secret) => name -> secret() }
  }

  /** The region in which S3A finds the bucket when it requests its metadata; None if the request fails. */
  def region: Option[String] =
    try {
      val system = path.getFileSystem(conf)
      Option(call(call(call(system, "getS3AInternals"), "getBucketMetadata"), "bucketRegion")).map(_.toString)
    } catch {
      case failure: Throwable if !Failures.stops(failure) => None
    }

  /** S3A is a module of Hadoop's that a session may not have. */
  private def call(of: AnyRef, method: String): AnyRef = {
    val found = of.getClass.getMethod(method)
    found.setAccessible(true)
    found.invoke(of)
  }
}

object HadoopSettings {
  private val Store = "hadoop.security.credential.provider.path"
  private val S3aStore = "fs.s3a.security.credential.provider.path"
  private val Prefixes = Seq("fs.", "google.cloud.", "hadoop.security.credential.")

  private def ofBucket(bucket: String) = s"fs.s3a.bucket.$bucket.security.credential.provider.path"
}
